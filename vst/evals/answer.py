"""What a server answered to one question: the request's outcome, and what its body holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vst.errors import TransportError
from vst.evals.number import spell
from vst.evals.plan import Plan
from vst.evals.prompts import CHAT
from vst.evals.question import digest_of
from vst.evals.record import ANSWERED, FAILED, EvalRecord
from vst.server.client import body_failure

ROUTES = {"completion": "/v1/completions", "chat": "/v1/chat/completions"}
AGAIN = (429, 502, 503, 504)
"""Answers that say that the request was not taken; only these and broken connections are worth another attempt."""


class Refused(TransportError):
    """One attempt failed; ``again`` says whether another one may be made."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(frozen=True)
class Answered:
    """The text of an answer with its token ids, where the server gives them, and how it ended."""

    text: str
    tokens: tuple[int, ...] | None
    prompt_tokens: str | None
    finish_reason: str
    usage: Mapping[str, Any] | None


def read_answer(status: int, data: bytes, style: str) -> Answered:
    """The answer in a response; Refused says what it is instead."""
    text = data.decode("utf-8", "replace")
    if not 200 <= status < 300:
        raise Refused(f"answered {status}: {text[:300]}", status in AGAIN)
    try:
        body = json.loads(text)
        if said := body_failure(body):
            raise Refused(f"answered {status}, but {said}", False)
        return _answered(body, style)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"not an answer: {type(error).__name__}: {error}: {text[:200]}", False) from error


def _answered(body: Mapping[str, Any], style: str) -> Answered:
    (choice,) = body["choices"]
    # A chat message without content is an answer in which nothing was said.
    said = (choice["message"]["content"] or "") if style == CHAT else choice["text"]
    prompt = (body if style == CHAT else choice).get("prompt_token_ids")
    reason = choice["finish_reason"]
    if not isinstance(said, str) or not isinstance(reason, str):
        raise ValueError("text and finish_reason must be text")
    usage = body.get("usage")
    return Answered(
        _writable(said),
        _ids(choice.get("token_ids")),
        digest_of(prompt) if prompt is not None else None,
        reason,
        dict(usage) if isinstance(usage, Mapping) else None,
    )


def _ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise ValueError("token_ids must be integers")
    return tuple(value)


def _writable(text: str) -> str:
    """Half a surrogate pair cannot be written to a file."""
    return text.encode("utf-8", "replace").decode()


def make_record(plan: Plan, index: int, found: Answered | str, call: Mapping[str, Any]) -> EvalRecord:
    """The record of one question from its answer, or from the reason why there is none."""
    question, prompt = plan.questions[index], plan.prompts[index]
    expected = str(spell(question.value))
    if isinstance(found, str):
        return EvalRecord(index, question.digest, prompt.digest, expected, FAILED, error=found, call=call)
    record = EvalRecord(
        index,
        question.digest,
        prompt.digest,
        expected,
        ANSWERED,
        text=found.text,
        tokens=found.tokens,
        prompt_tokens=found.prompt_tokens,
        finish_reason=found.finish_reason,
        usage=found.usage,
        call=call,
    )
    return record.read(plan.sampling.stop)
