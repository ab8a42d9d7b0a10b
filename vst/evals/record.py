"""The record of one question: what was answered, as it came, and what was read out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from vst.errors import VerificationError
from vst.evals.extract import extract
from vst.evals.number import spell

ANSWERED, FAILED = "answered", "failed"
RULES = ("strict", "flexible")
CACHED = "prompt_tokens_details"


@dataclass(frozen=True)
class EvalRecord:
    """One question's answer. Values are spelled as fractions: ``18``, ``-3/4``, None where none was read.

    ``prompt`` is the digest of what was sent, ``prompt_tokens`` that of the tokens the server made of it; ``call`` says
    when it was asked, how long it took and which attempts failed, and is no part of what is compared.
    """

    index: int
    question: str
    prompt: str
    expected: str
    outcome: str
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    prompt_tokens: str | None = None
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    strict: str | None = None
    flexible: str | None = None
    error: str | None = None
    call: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        return self.outcome == ANSWERED

    def value(self, rule: str) -> str | None:
        """The value read by ``strict`` or ``flexible``."""
        return self.strict if rule == "strict" else self.flexible

    def right(self, rule: str) -> bool:
        """Whether the answer is right; a failed request is not."""
        return self.answered and self.value(rule) is not None and self.value(rule) == self.expected

    def read(self, stops: Sequence[str]) -> EvalRecord:
        """The same record with the values read out of its text (again)."""
        if self.text is None:
            return replace(self, strict=None, flexible=None)
        found = extract(self.text, stops)
        return replace(self, strict=spell(found.strict), flexible=spell(found.flexible))

    def content(self) -> dict[str, Any]:
        """Everything but the circumstances of the call: equal for equal answers.

        How much of a prompt was cached depends on what was asked before, not on the answer.
        """
        usage = None if self.usage is None else {key: n for key, n in self.usage.items() if key != CACHED}
        return {key: value for key, value in self.to_json().items() if key != "call"} | {"usage": usage}

    def to_json(self) -> dict[str, Any]:
        tokens = list(self.tokens) if self.tokens is not None else None
        return {"kind": "record", **asdict(self), "tokens": tokens}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> EvalRecord:
        """Read a stored record; VerificationError when it is none."""
        try:
            fields = {key: data[key] for key in EvalRecord.__dataclass_fields__}
        except KeyError as error:
            raise VerificationError(f"a record of an evaluation has no {error.args[0]}") from error
        record = EvalRecord(**{**fields, "tokens": _tokens(fields["tokens"])})
        problem = _problem(record)
        if problem:
            raise VerificationError(f"damaged record {record.index!r} of an evaluation: {problem}")
        return record


def line(content: Mapping[str, Any]) -> bytes:
    """One line of an evaluation's file; plain ASCII, so that any text can be written."""
    return (json.dumps(content, sort_keys=True, default=dict) + "\n").encode("ascii")


def _tokens(value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(value)


def _problem(record: EvalRecord) -> str | None:
    if not isinstance(record.index, int) or isinstance(record.index, bool) or record.index < 0:
        return "its index is no position"
    if record.outcome not in (ANSWERED, FAILED):
        return f"its outcome is {record.outcome!r}"
    if record.answered != isinstance(record.text, str) or record.answered == isinstance(record.error, str):
        return "an answered question has a text and no error, a failed one an error and no text"
    for name in ("expected", *RULES):
        value = getattr(record, name)
        if (value is None and name == "expected") or (value is not None and not _is_value(value)):
            return f"{name} is {value!r}, which is no number"
    return None


def _is_value(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(Fraction(value)) == value
    except (ValueError, ZeroDivisionError):
        return False
