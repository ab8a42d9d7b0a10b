from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from typing import Any

import pytest
from http_server import Raw, Reply

from load.talker import Memory, Talker, echo, event, wait_until
from vst.errors import TransportError, VerificationError
from vst.load.generator import Limits, Load, LoadFailed
from vst.load.log import read_log
from vst.load.workload import Pace, Target, Workload
from vst.provenance.atomic import StorageFailure

WORK = Workload(((1, 2), (3, 4, 5), (6,)), output_tokens=4, stream_share=0.5, seed=1)
CLOSED = Pace(concurrency=2, rate=None, max_in_flight=8, max_requests=9)
LIMITS = Limits(request_s=10, load_s=60)


def load_on(
    url: str, journal: Any, work: Workload = WORK, pace: Pace = CLOSED, limits: Limits = LIMITS, **target: Any
) -> Load:
    return Load(Target(url, "tiny", **target), work, pace, limits, journal)


def test_closed_loop_asks_each_prompt_as_often_and_loses_no_answer() -> None:
    journal = Memory()
    with Talker() as server, load_on(server.url, journal) as load:
        load.run_out(10)
        load.stop(1)
        asked = server.prompts()
    log = read_log(journal.data())
    assert sorted(map(tuple, asked)) == sorted(WORK.prompts * 3)
    assert (log.sent, len(log.answers), log.lost(), log.doubled()) == (9, 9, [], [])
    assert {one.stream for one in log.answers} == {True, False}
    for one in log.answers:
        assert one.tokens == tuple(echo(list(WORK.prompts[one.prompt])))
        assert (one.status, one.finish, one.completion_tokens, one.closed, one.error) == (200, "length", 4, True, None)
        assert one.runners == ((200, -3.0),) * 4
        assert len(one.arrivals) == (4 if one.stream else 0)
        assert one.sent <= min(one.arrivals, default=one.ended) <= one.ended


def test_all_sampling_fields_are_sent_and_streams_ask_for_their_usage() -> None:
    with Talker() as server, load_on(server.url, Memory()) as load:
        load.run_out(10)
        load.stop(1)
        bodies = [call.body for call in server.server.calls]
    needed = {"temperature": 0.0, "seed": 1, "ignore_eos": True, "min_tokens": 4, "max_tokens": 4, "top_p": 1.0}
    assert all(needed.items() <= body.items() for body in bodies)
    assert all(body["stream"] == ("stream_options" in body) for body in bodies)


def test_same_seed_asks_the_same_and_another_does_not() -> None:
    drawn = [WORK.draw(number) for number in range(30)]
    assert drawn == [WORK.draw(number) for number in range(30)]
    assert drawn != [replace(WORK, seed=2).draw(number) for number in range(30)]


def test_open_loop_goes_on_arriving_while_nothing_is_answered_up_to_its_bound() -> None:
    journal = Memory()
    with Talker() as server:
        server.before = lambda step: bool(server.gate.wait(10)) and None
        pace = Pace(concurrency=1, rate=200.0, max_in_flight=5, max_requests=1000)
        with load_on(server.url, journal, pace=pace) as load:
            wait_until(lambda: load.sent == 5 and len(server.prompts()) == 5)
            time.sleep(0.1)
            assert (load.sent, load.open) == (5, 5)
            server.gate.set()
            wait_until(lambda: load.sent > 20)
            load.stop(10)
    log = read_log(journal.data())
    assert log.held_back > 0
    assert log.lost() == []
    assert all(one.error is None for one in log.answers)


def test_answer_that_never_ends_is_lost_at_its_deadline() -> None:
    journal = Memory()
    with Talker() as server:
        server.before = lambda step: bool(step == 2 and server.gate.wait(10)) and None
        limits = Limits(request_s=0.4, load_s=60)
        pace = replace(CLOSED, max_requests=2)
        with load_on(server.url, journal, replace(WORK, stream_share=1.0), pace, limits) as load:
            load.run_out(10)
            load.stop(0.1)
    for one in read_log(journal.data()).answers:
        assert one.error == "no whole answer within 0.4 s"
        assert (len(one.tokens), one.closed) == (2, False)
        assert 0.4 <= one.ended - one.sent < 2


def test_stop_waits_for_what_is_open_and_sends_nothing_more() -> None:
    journal = Memory()
    with Talker() as server:
        server.before = lambda step: time.sleep(0.1)
        with load_on(server.url, journal, pace=replace(CLOSED, max_requests=1000)) as load:
            wait_until(lambda: load.open == 2)
            load.stop(10)
            sent = load.sent
    log = read_log(journal.data())
    assert (log.sent, len(log.answers)) == (sent, sent)
    assert all(one.error is None for one in log.answers)


@pytest.mark.parametrize("stopped", [True, False], ids=["stop", "leave the block"])
def test_what_is_still_open_after_the_drain_is_cut_and_written_down(stopped: bool) -> None:
    journal = Memory()
    with Talker() as server:
        server.before = lambda step: bool(server.gate.wait(20)) and None
        begun = time.monotonic()
        with load_on(server.url, journal) as load:
            wait_until(lambda: load.open == 2)
            if stopped:
                load.stop(0.2)
        assert time.monotonic() - begun < 5
    assert [one["error"][:9] for one in journal.answers()] == ["cut after"] * 2
    assert [line["kind"] for line in journal.lines].count("end") == stopped


def test_connection_that_is_reset_in_a_stream_keeps_the_tokens_that_came() -> None:
    def cut(connection: socket.socket) -> None:
        text = b"data: " + json.dumps(event([9])).encode() + b"\n\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(text), text))
        time.sleep(0.1)
        server.reset(connection)

    journal = Memory()
    with Talker() as server:
        server.server.routes["POST /v1/completions"] = Raw(cut)
        work = replace(WORK, stream_share=1.0)
        with load_on(server.url, journal, work, replace(CLOSED, max_requests=1)) as load:
            load.run_out(10)
            load.stop(1)
    (one,) = read_log(journal.data()).answers
    assert (one.tokens, one.closed) == ((9,), False)
    assert one.error is not None


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(503, {"error": "paused"}), "answered 503"),
        (Reply(200, {"error": {"message": "no"}}), "answered 200, but error"),
        (Reply(200, {"choices": []}), None),
        (Reply(200, b"{"), "not an answer"),
        (Reply(200, {"choices": [1]}), "not an answer"),
    ],
)
def test_answer_that_is_none_is_written_down_with_what_it_was(reply: Reply, told: str | None) -> None:
    journal = Memory()
    with Talker() as server:
        server.server.routes["POST /v1/completions"] = reply
        work = replace(WORK, stream_share=0.0)
        with load_on(server.url, journal, work, replace(CLOSED, max_requests=1)) as load:
            load.run_out(10)
            load.stop(1)
    (one,) = read_log(journal.data()).answers
    assert not one.closed
    assert (one.error is None) if told is None else (one.error or "").startswith(told)


def test_server_that_is_not_there_is_an_error_of_each_request_and_not_of_the_load() -> None:
    journal = Memory()
    with Talker() as server:
        url = server.url
    with load_on(url, journal) as load:
        load.run_out(10)
        load.stop(1)
    assert ["Connect" in one["error"] for one in journal.answers()] == [True] * 9


def test_load_that_runs_longer_than_it_may_sends_nothing_more() -> None:
    with Talker() as server:
        limits = Limits(request_s=10, load_s=0.2)
        with load_on(server.url, Memory(), pace=replace(CLOSED, max_requests=10**9), limits=limits) as load:
            load.run_out(10)
            sent = load.sent
            time.sleep(0.1)
            assert load.sent == sent > 0
            load.stop(1)


def test_key_travels_in_its_header_and_not_into_the_log() -> None:
    journal = Memory()
    with (
        Talker() as server,
        load_on(server.url, journal, api_key="sesame", headers={"X-data-parallel-rank": "1"}) as load,
    ):
        load.run_out(10)
        load.stop(1)
        heads = [call.headers for call in server.server.calls]
    assert {head["authorization"] for head in heads} == {"Bearer sesame"}
    assert {head["x-data-parallel-rank"] for head in heads} == {"1"}
    assert b"sesame" not in journal.data()


class Full(Memory):
    """A journal on a disk that fills up with the third answer."""

    def append(self, kind: str, **fields: Any) -> None:
        if kind == "answer" and len(self.answers()) == 2:
            raise StorageFailure("load.jsonl cannot be written: No space left on device")
        super().append(kind, **fields)


def test_journal_that_cannot_be_written_ends_the_load_and_is_raised_in_the_lane() -> None:
    with Talker() as server, load_on(server.url, Full()) as load:
        with pytest.raises(StorageFailure, match="No space left"):
            load.run_out(10)
        with pytest.raises(StorageFailure, match="No space left"):
            load.mark("pausing", mode="keep")
        with pytest.raises(StorageFailure, match="No space left"):
            load.stop(1)
        assert load.sent < 9


def test_load_that_broke_by_a_fault_of_ours_is_an_error_and_no_quiet_load() -> None:
    class Broken(Memory):
        def append(self, kind: str, **fields: Any) -> None:
            if kind == "answer":
                raise RuntimeError("a bug")

    with Talker() as server, load_on(server.url, Broken()) as load, pytest.raises(LoadFailed, match="a bug"):
        load.run_out(10)


def test_load_that_does_not_run_out_in_time_says_how_far_it_came() -> None:
    with Talker() as server:
        server.before = lambda step: bool(server.gate.wait(20)) and None
        with load_on(server.url, Memory()) as load, pytest.raises(TransportError, match="2 sent, 2 open"):
            load.run_out(0.3)


def test_load_cannot_be_stopped_twice() -> None:
    with Talker() as server, load_on(server.url, Memory()) as load:
        load.stop(5)
        with pytest.raises(VerificationError, match="does not run"):
            load.stop(5)
