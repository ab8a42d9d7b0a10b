"""Asking over real sockets: what is sent, how many at once, what fails and stays failed, what is asked again."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evals.completions import Completions
from evals.plans import endpoint, header, make_plan
from vst.errors import VerificationError
from vst.evals.asking import evaluate
from vst.evals.store import Evaluation, read_evaluation
from vst.server.client import Exchange

SENT = {
    "model", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "seed", "n", "stop", "stream", "ignore_eos", "stop_token_ids",
    "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "return_token_ids",
}  # fmt: skip


def ask(
    server: Completions, path: Path, plan: Any = None, resumed: Evaluation | None = None, **more: Any
) -> Evaluation:
    plan = plan or make_plan()
    return evaluate(plan, endpoint(server.url, **more), path / "e.jsonl", header(plan), resumed)


@pytest.mark.parametrize("style", ["completion", "chat"])
def test_every_sampling_field_is_sent_so_that_no_default_decides(style: str, tmp_path: Path) -> None:
    with Completions() as server:
        found = ask(server, tmp_path, make_plan(style=style))
    assert found.complete and not found.failed
    for body in server.seen:
        assert set(body) >= SENT and ("prompt" in body) == (style == "completion")
    sampling = found.plan["sampling"]
    assert all(server.seen[0][key] == value for key, value in sampling.items())
    assert sampling.keys() == SENT - {"model"}


@pytest.mark.parametrize("style", ["completion", "chat"])
def test_a_record_holds_the_raw_text_tokens_ending_and_usage(style: str, tmp_path: Path) -> None:
    with Completions() as server:
        found = ask(server, tmp_path, make_plan(style=style))
    assert [record.index for record in found.records] == list(range(12))
    for record in found.records:
        assert record.text is not None and record.tokens == tuple(record.text.encode())
        assert record.finish_reason == "stop" and record.usage and record.prompt_tokens
        assert record.strict == record.flexible == record.text.rpartition("#### ")[2]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_more_requests_are_open_at_once_than_the_plan_says(concurrency: int, tmp_path: Path) -> None:
    with Completions(delay_s=0.05) as server:
        ask(server, tmp_path, make_plan(16, concurrency=concurrency))
    assert server.most == concurrency
    assert len(server.seen) == 16


def test_with_one_at_a_time_the_questions_come_in_their_order(tmp_path: Path) -> None:
    plan = make_plan(concurrency=1)
    with Completions() as server:
        ask(server, tmp_path, plan)
    assert server.prompts == [prompt.content for prompt in plan.prompts]


def test_a_request_that_fails_stays_in_the_denominator_as_failed(tmp_path: Path) -> None:
    """Case K36."""

    def fail(body: dict[str, Any], number: int) -> tuple[int, bytes] | None:
        return (400, b'{"error": {"message": "too long"}}') if number == 3 else None

    with Completions(script=fail) as server:
        found = ask(server, tmp_path, make_plan(concurrency=1))
    assert len(found.records) == 12 and len(server.seen) == 12
    (failed,) = found.failed
    assert failed.index == 2 and "too long" in str(failed.error) and failed.text is None
    assert not failed.right("flexible")


def test_a_server_that_was_busy_is_asked_again_and_the_record_says_so(tmp_path: Path) -> None:
    def busy(body: dict[str, Any], number: int) -> tuple[int, bytes] | None:
        return (503, b"busy") if number in (2, 3) else None

    with Completions(script=busy) as server:
        found = ask(server, tmp_path, make_plan(concurrency=1))
    assert not found.failed and len(server.seen) == 14
    attempts = [len(record.call["failed_attempts"]) for record in found.records]
    assert attempts == [0, 2] + [0] * 10
    assert "503" in found.records[1].call["failed_attempts"][0]


def test_a_server_that_stays_busy_ends_as_failed_after_the_last_attempt(tmp_path: Path) -> None:
    with Completions(script=lambda body, number: (503, b"busy")) as server:
        found = ask(server, tmp_path, make_plan(2, concurrency=1), retries=1)
    assert [record.outcome for record in found.records] == ["failed", "failed"]
    assert len(server.seen) == 4


def test_an_answer_that_does_not_come_in_time_is_failed_and_not_asked_again(tmp_path: Path) -> None:
    with Completions(delay_s=30) as server:
        found = ask(server, tmp_path, make_plan(2, concurrency=2), timeout_s=0.3)
    assert [record.error for record in found.records] == ["no answer after 0.3 s"] * 2
    assert len(server.seen) == 2


BROKEN = {
    "nothing": b"",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
    "another protocol": b"SSH-2.0-x\r\n",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_connection_that_breaks_before_an_answer_is_tried_again_and_then_failed(what: str, tmp_path: Path) -> None:
    with Completions(script=lambda body, number: BROKEN[what]) as server:
        found = ask(server, tmp_path, make_plan(1, concurrency=1), retries=1)
    assert found.records[0].outcome == "failed" and "no answer" in str(found.records[0].error)
    assert len(found.records[0].call["failed_attempts"]) == 2


NO_ANSWERS = {
    "text": b"hello", "null": b"null", "no choice": b'{"choices": []}', "two": b'{"choices": [{}, {}]}',
    "no text": b'{"choices": [{"text": null, "finish_reason": "stop"}]}', "success false": b'{"success": false}',
    "no ending": b'{"choices": [{"text": "x", "finish_reason": null}]}', "error": b'{"error": "x"}',
    "tokens": b'{"choices": [{"text": "x", "finish_reason": "stop", "token_ids": ["a"]}]}',
}  # fmt: skip


@pytest.mark.parametrize("what", NO_ANSWERS)
def test_a_200_that_is_no_answer_is_a_failure(what: str, tmp_path: Path) -> None:
    with Completions(script=lambda body, number: (200, NO_ANSWERS[what])) as server:
        found = ask(server, tmp_path, make_plan(1))
    assert found.records[0].outcome == "failed" and found.records[0].strict is None
    assert len(server.seen) == 1


def test_a_chat_answer_without_content_says_nothing_and_is_answered(tmp_path: Path) -> None:
    body = {"choices": [{"message": {"content": None, "reasoning": "18"}, "finish_reason": "length"}]}
    with Completions(script=lambda asked, number: (200, json.dumps(body).encode())) as server:
        found = ask(server, tmp_path, make_plan(1, style="chat"))
    assert (found.records[0].outcome, found.records[0].text, found.records[0].flexible) == ("answered", "", None)


def test_half_a_surrogate_pair_can_be_kept(tmp_path: Path) -> None:
    data = b'{"choices": [{"text": "\\ud83d #### 5", "finish_reason": "stop"}]}'
    with Completions(script=lambda body, number: (200, data)) as server:
        found = ask(server, tmp_path, make_plan(1))
    assert found.records[0].strict == "5"
    assert read_evaluation(tmp_path / "e.jsonl").records == found.records


def test_a_key_is_sent_and_is_in_nothing_that_is_kept(tmp_path: Path) -> None:
    plan, heard = make_plan(2), list[Exchange]()
    with Completions(script=lambda body, number: (401, b"wrong key: planted-secret")) as server:
        where = endpoint(server.url)
        where = type(where)(where.base_url, where.model, "planted-secret", 5.0, 0)
        found = evaluate(plan, where, tmp_path / "e.jsonl", header(plan), tell=heard.append)
    assert len(found.failed) == 2 and len(heard) == 2
    assert "planted-secret" not in (tmp_path / "e.jsonl").read_text() + str(heard)


def test_records_are_in_the_file_while_others_are_still_asked(tmp_path: Path) -> None:
    seen_lines = []

    def look(body: dict[str, Any], number: int) -> None:
        seen_lines.append(len((tmp_path / "e.jsonl").read_bytes().splitlines()))

    with Completions(script=look) as server:
        ask(server, tmp_path, make_plan(concurrency=1))
    assert seen_lines == list(range(1, 13))


def test_what_has_a_record_is_not_asked_again_also_when_it_failed(tmp_path: Path) -> None:
    plan = make_plan(concurrency=1)
    (tmp_path / "second").mkdir()
    with Completions(script=lambda body, number: (500, b"no") if number == 2 else None) as server:
        whole = ask(server, tmp_path, plan)
        cut = Evaluation(whole.header, whole.records[:5], False)
        found = ask(server, tmp_path / "second", plan, cut)
    asked = Counter(server.prompts)
    assert [asked[str(prompt.content)] for prompt in plan.prompts] == [1] * 5 + [2] * 7
    assert found.digest == whole.digest and len(found.failed) == 1


@pytest.mark.parametrize("what", ["count", "concurrency", "style", "server"])
def test_an_evaluation_of_something_else_is_not_resumed(what: str, tmp_path: Path) -> None:
    others = {"count": make_plan(11), "concurrency": make_plan(concurrency=2), "style": make_plan(style="chat")}
    (tmp_path / "second").mkdir()
    with Completions() as server:
        found = ask(server, tmp_path, others.get(what))
        before = Evaluation({**found.header, "server": {}} if what == "server" else found.header, found.records, False)
        asked = len(server.seen)
        with pytest.raises(VerificationError, match="differs in"):
            ask(server, tmp_path / "second", make_plan(), before)
    assert len(server.seen) == asked


class Stopped(BaseException):
    """What a signal raises."""


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_signal_in_the_middle_ends_it_at_once_as_what_the_handler_raised(concurrency: int, tmp_path: Path) -> None:
    def stop(number: int, frame: Any) -> None:
        raise Stopped

    def once(body: Any, number: int) -> None:
        # A second one would break the waiting for the thread's end, as a second Ctrl-C may.
        if number == 1:
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    begun = time.monotonic()
    try:
        with (
            Completions(delay_s=30, script=once) as server,
            pytest.raises(Stopped),
        ):
            ask(server, tmp_path, make_plan(concurrency=concurrency))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - begun < 10
    assert not [thread for thread in threading.enumerate() if thread.name == "evaluation"]
    assert read_evaluation(tmp_path / "e.jsonl").missing == 12
