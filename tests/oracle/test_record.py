from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from http_server import Call, HttpServer, Reply

from oracle.answers import answer, completion, record
from vst.errors import TransportError, VerificationError
from vst.oracle.compare import difference
from vst.oracle.probes import ProbeSet
from vst.oracle.record import Answer, Record, read_answer, request, take_record
from vst.server.client import ControlPlane, HttpFailure

PROMPT = (1, 2, 3)
PROBES = ProbeSet(((1, 2, 3), (4, 5, 6)), 2, 5, 7)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer({"POST /v1/completions": lambda call: completion(tuple(call.body["prompt"]))}) as one:
        yield one


def test_a_whole_answer_is_read_with_its_candidates_in_order_of_likelihood() -> None:
    got = read_answer(completion(), PROMPT, 2)
    assert (got.prompt, got.prompt_logprobs, got.output) == (PROMPT, (-1.0, -1.0), (7, 8))
    assert got.output_logprobs == (-0.5, -0.25)
    assert got.top == (((7, -0.5), (9, -0.6)), ((8, -0.25),))
    assert got.cached_tokens == 2


BROKEN: dict[str, Any] = {
    "text": "<html>",
    "nothing": None,
    "a list": [],
    "no choices": {"choices": []},
    "choices of another kind": {"choices": {"0": {}}},
    "a choice of another kind": {"choices": ["x"]},
    "no prompt log-probabilities": completion(prompt_logprobs=None),
    "fewer prompt log-probabilities": completion(prompt_logprobs=[None, {"2": {"logprob": -1}}]),
    "another prompt": completion(prompt_logprobs=[None, {"2": {"logprob": -1}}, {"4": {"logprob": -1}}]),
    "a prompt position that is none": completion(prompt_logprobs=[None, None, {"3": {"logprob": -1}}]),
    "a log-probability that is none": completion(
        prompt_logprobs=[None, {"2": {"logprob": None}}, {"3": {"logprob": -1}}]
    ),
    "no log-probabilities": completion(logprobs=None),
    "too few tokens": completion(logprobs={"tokens": ["token_id:7"]}),
    "too many tokens": completion(logprobs={"tokens": ["token_id:7"] * 3}),
    "tokens as text": completion(logprobs={"tokens": ["Hello", " world"]}),
    "tokens as numbers": completion(logprobs={"tokens": [7, 8]}),
    "fewer log-probabilities than tokens": completion(logprobs={"token_logprobs": [-0.5]}),
    "null log-probabilities": completion(logprobs={"token_logprobs": [-0.5, None]}),
    "fewer candidates than tokens": completion(logprobs={"top_logprobs": [{"token_id:7": -0.5}]}),
    "null candidates": completion(logprobs={"top_logprobs": [None, None]}),
    "no candidates": completion(logprobs={"top_logprobs": None}),
    "candidates as a list": completion(logprobs={"top_logprobs": [["token_id:7", -0.5]] * 2}),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_body_that_is_no_whole_answer_is_a_transport_error(what: str) -> None:
    with pytest.raises(TransportError, match="/v1/completions"):
        read_answer(BROKEN[what], PROMPT, 2)


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": True}}, None),
        ({"prompt_tokens_details": {"cached_tokens": "3"}}, None),
        ({"prompt_tokens_details": {}}, None),
        ({"prompt_tokens_details": None}, None),
        ({"prompt_tokens_details": [1]}, None),
        ({}, None),
        (None, None),
        ("text", None),
    ],
)
def test_cached_tokens_that_are_not_reported_are_unknown_and_not_zero(usage: Any, cached: int | None) -> None:
    assert read_answer({**completion(), "usage": usage}, PROMPT, 2).cached_tokens == cached


def test_all_probes_are_asked_one_after_the_other_with_every_sampling_field(server: HttpServer) -> None:
    taken = take_record(ControlPlane(server.url), "tiny", PROBES, "A", 5.0)
    assert [call.body for call in server.calls] == [request("tiny", prompt, PROBES) for prompt in PROBES.prompts]
    assert (taken.claim, taken.probes, len(taken.answers)) == ("A", PROBES.digest, 2)
    body = server.calls[0].body
    expected = {
        "temperature": 0.0,
        "ignore_eos": True,
        "min_tokens": 2,
        "max_tokens": 2,
        "seed": 7,
        "n": 1,
        "top_k": -1,
    }
    assert {key: body[key] for key in expected} == expected


def test_one_broken_answer_leaves_no_record(server: HttpServer) -> None:
    answers = iter([completion((1, 2, 3)), {"choices": []}])
    server.routes["POST /v1/completions"] = lambda call: next(answers)
    with pytest.raises(TransportError):
        take_record(ControlPlane(server.url), "tiny", PROBES, "A", 5.0)


def test_log_probabilities_that_are_not_finite_are_read_kept_and_written(server: HttpServer) -> None:
    def route(call: Call) -> Any:
        body = completion(tuple(call.body["prompt"]), logprobs={"token_logprobs": [float("nan"), float("-inf")]})
        return Reply(200, json.dumps(body).encode())

    server.routes["POST /v1/completions"] = route
    taken = take_record(ControlPlane(server.url), "tiny", PROBES, "A", 5.0)
    assert not taken.finite()
    text = json.dumps(taken.to_json(), allow_nan=False)
    back = Record.from_json(json.loads(text))
    assert not back.finite() and back.answers[0].output_logprobs[1] == float("-inf")
    assert json.dumps(back.to_json()) == text


UNWRITTEN = {"message": "Out of range float values are not JSON compliant", "type": "BadRequestError", "code": 400}


@pytest.mark.parametrize("suffix", ["", ": nan"], ids=["python 3.11", "python 3.12"])
@pytest.mark.parametrize("status", [400, 500])
def test_an_answer_that_vllm_could_not_write_is_one_without_a_number(
    server: HttpServer, status: int, suffix: str
) -> None:
    body = {"error": {**UNWRITTEN, "message": UNWRITTEN["message"] + suffix}}
    server.routes["POST /v1/completions"] = lambda call: Reply(status, json.dumps(body).encode())
    taken = take_record(ControlPlane(server.url), "tiny", PROBES, "A", 5.0)
    assert len(taken.answers) == len(PROBES.prompts)
    assert not any(one.finite() or one.output for one in taken.answers)
    assert not Record.from_json(json.loads(json.dumps(taken.to_json(), allow_nan=False))).finite()
    found = difference(taken, taken, 0.0)
    assert found.non_finite and not found.equal


def test_the_same_answers_are_the_same_also_where_they_are_no_numbers() -> None:
    one = Record("A", "d", (Answer.unwritten((1, 2, 3)), answer()))
    again = Record.from_json(json.loads(json.dumps(one.to_json())))
    assert one.same_answers(again) and again.same_answers(one)
    assert not one.same_answers(Record("A", "d", (Answer.unwritten((1, 2, 4)), answer())))
    assert not one.same_answers(Record("A", "d", (answer(), answer())))


@pytest.mark.parametrize(
    "body",
    [
        {"error": {**UNWRITTEN, "message": "max_tokens must be at least 1"}},
        {"error": {"message": f"quoted: {UNWRITTEN['message']}"}},
        {"detail": UNWRITTEN["message"]},
        UNWRITTEN["message"],
        [UNWRITTEN],
    ],
)
def test_another_refusal_is_no_answer(server: HttpServer, body: Any) -> None:
    server.routes["POST /v1/completions"] = lambda call: Reply(400, json.dumps(body).encode())
    with pytest.raises(HttpFailure):
        take_record(ControlPlane(server.url), "tiny", PROBES, "A", 5.0)


def test_a_record_comes_back_from_json_as_it_was() -> None:
    one = record(answer(cached_tokens=None))
    assert Record.from_json(json.loads(json.dumps(one.to_json()))) == one


def damage(**changes: Any) -> dict[str, Any]:
    data = json.loads(json.dumps(record().to_json()))
    data["answers"][1].update(changes)
    return dict(data)


DAMAGED: dict[str, Any] = {
    "another format": {**damage(), "format": "vst-record/2"},
    "no format": {},
    "no answers": {"format": "vst-record/1", "claim": "A", "probes": "x"},
    "answers of another kind": {**damage(), "answers": [3]},
    "a short list of log-probabilities": damage(prompt_logprobs=[-1.0]),
    "a long list of log-probabilities": damage(output_logprobs=[-1.0] * 3),
    "no candidates": damage(top=[]),
    "a token that is text": damage(output=["x", "y"]),
    "a token that is infinite": damage(output=[float("inf"), 8]),
    "candidates that are no pairs": damage(top=[[[1, 2, 3]], [[1, 2, 3]]]),
    "no prompt": damage(prompt=None),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_record_is_refused(what: str) -> None:
    with pytest.raises(VerificationError):
        Record.from_json(DAMAGED[what])
