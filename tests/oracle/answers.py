"""Small records that tests change in one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vst.oracle.record import Answer, Record


def answer(**changes: Any) -> Answer:
    given: dict[str, Any] = {
        "prompt": (1, 2, 3),
        "prompt_logprobs": (-1.0, -2.0),
        "output": (7, 8),
        "output_logprobs": (-0.5, -0.25),
        "top": (((7, -0.5), (9, -0.6)), ((8, -0.25), (9, -3.0))),
        "cached_tokens": 0,
    }
    return Answer(**{**given, **changes})


def record(*answers: Answer, claim: str = "B", probes: str = "sha256:1") -> Record:
    return Record(claim, probes, answers or (answer(), answer()))


def shifted(base: Record, by: float, claim: str | None = None, probes: tuple[int, ...] = (0, 1)) -> Record:
    """The record with all prompt log-probabilities of some probes moved by ``by``."""
    moved = tuple(
        replace(one, prompt_logprobs=tuple(value + by for value in one.prompt_logprobs)) if number in probes else one
        for number, one in enumerate(base.answers)
    )
    return Record(claim or base.claim, base.probes, moved)


def completion(prompt: tuple[int, ...] = (1, 2, 3), **changes: Any) -> dict[str, Any]:
    """The body of a completion as vLLM gives it, with two generated tokens."""
    choice: dict[str, Any] = {
        "prompt_logprobs": [None, *({str(token): {"logprob": -1.0}} for token in prompt[1:])],
        "logprobs": {
            "tokens": ["token_id:7", "token_id:8"],
            "token_logprobs": [-0.5, -0.25],
            "top_logprobs": [{"token_id:9": -0.6, "token_id:7": -0.5}, {"token_id:8": -0.25}],
        },
    }
    logprobs = changes.pop("logprobs", {})
    choice["logprobs"] = {**choice["logprobs"], **logprobs} if isinstance(logprobs, dict) else logprobs
    return {"choices": [{**choice, **changes}], "usage": {"prompt_tokens_details": {"cached_tokens": 2}}}
