"""Waiting for a stream that is in the middle of its answer, over real connections."""

from __future__ import annotations

import time

from load.talker import Memory, Talker

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
            server.gate.set()
            load.run_out(20)
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
