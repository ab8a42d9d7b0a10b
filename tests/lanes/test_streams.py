"""Waiting for a stream that is in the middle of its answer, over real connections."""

from __future__ import annotations

import json
import time
from typing import Any

from http_server import Raw
from load.talker import Memory, Talker, event

from vst.lanes.pauses import caught
from vst.lanes.streams import catch
from vst.load.generator import Limits, Load
from vst.load.workload import Pace, Target, Workload

WORK = Workload(((1, 2), (3, 4, 5)), output_tokens=4, stream_share=1.0, seed=1)


def load_on(server: Talker, requests: int) -> Load:
    return Load(Target(server.url, "tiny"), WORK, Pace(1, None, 1, requests), Limits(30, 60), Memory())


def test_it_returns_while_a_stream_has_brought_its_first_token_and_not_its_second() -> None:
    with Talker() as server:
        server.before = lambda step: bool(step == 1 and len(server.prompts()) >= 2 and server.gate.wait(20)) and None
        with load_on(server, 4) as load:
            catch(load, 1, WORK.output_tokens, 20)
            assert (load.begun(1), load.open) == (1, 1)
            assert caught(load, "keep", WORK.output_tokens) and not caught(load, "abort", WORK.output_tokens)
            server.gate.set()
            load.run_out(20)
            assert not caught(load, "keep", WORK.output_tokens)
            load.stop(1)
            assert load.begun(4) == 0


def test_streams_that_come_at_once_are_waited_for_until_the_load_has_run_out() -> None:
    with Talker() as server, load_on(server, 6) as load:
        begun = time.monotonic()
        catch(load, 1, WORK.output_tokens, 20)
        assert time.monotonic() - begun < 15
        load.run_out(20)
        load.stop(1)


def test_streams_that_never_begin_are_waited_for_as_long_as_it_says() -> None:
    with Talker() as server:
        server.before = lambda step: bool(server.gate.wait(20)) and None
        with load_on(server, 6) as load:
            begun = time.monotonic()
            catch(load, 1, WORK.output_tokens, 0.5)
            assert 0.5 <= time.monotonic() - begun < 10 and load.begun(4) == 0


def test_a_stream_that_was_aborted_after_it_had_begun_was_caught() -> None:
    def cut(connection: Any) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for content in (event([5]), event([], "abort")):
            connection.sendall(b"data: " + json.dumps(content).encode() + b"\n\n")
        connection.sendall(b"data: [DONE]\n\n")

    with Talker() as server:
        server.server.routes["POST /v1/completions"] = Raw(cut)
        with load_on(server, 2) as load:
            load.run_out(20)
            load.stop(1)
            assert caught(load, "abort", WORK.output_tokens) and load.aborted == 2
