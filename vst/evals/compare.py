"""Two evaluations of the same questions, record by record: equal text, equal answer, equal correctness.

Pure functions over stored records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vst.errors import VerificationError
from vst.evals.plan import PINNED
from vst.evals.record import EvalRecord
from vst.evals.statistics import Table
from vst.evals.store import Evaluation


@dataclass(frozen=True)
class Pair:
    """The records of one question: ``left`` was expected, ``right`` was found."""

    left: EvalRecord
    right: EvalRecord

    @property
    def same_text(self) -> bool:
        """The same text, ended alike, of the same tokens if both tell them; a failed request equals nothing."""
        a, b = self.left, self.right
        tokens = a.tokens == b.tokens or a.tokens is None or b.tokens is None
        return self.answered and tokens and (a.text, a.finish_reason) == (b.text, b.finish_reason)

    @property
    def answered(self) -> bool:
        return self.left.answered and self.right.answered

    def same_answer(self, rule: str) -> bool:
        return self.answered and self.left.value(rule) == self.right.value(rule)

    def same_correctness(self, rule: str) -> bool:
        return self.left.right(rule) == self.right.right(rule)

    def to_json(self, rule: str) -> dict[str, Any]:
        """The pair as it is listed: the question's index, what was right, both texts with what was read from them."""
        return {
            "index": self.left.index,
            "question": self.left.question,
            "expected": self.left.expected,
            "same_answer": self.same_answer(rule),
            "same_correctness": self.same_correctness(rule),
            "left": _shown(self.left, rule),
            "right": _shown(self.right, rule),
        }


def _shown(record: EvalRecord, rule: str) -> dict[str, Any]:
    return {
        "outcome": record.outcome,
        "text": record.text,
        "answer": record.value(rule),
        "right": record.right(rule),
        "finish_reason": record.finish_reason,
        "error": record.error,
    }


@dataclass(frozen=True)
class Comparison:
    """All pairs of two complete evaluations, judged by one rule of reading the answer."""

    left: Evaluation
    right: Evaluation
    rule: str

    @property
    def pairs(self) -> Iterator[Pair]:
        for a, b in zip(self.left.records, self.right.records, strict=True):
            yield Pair(a, b)

    @property
    def differing(self) -> list[Pair]:
        """The pairs whose texts differ, and those in which a request failed."""
        return [pair for pair in self.pairs if not pair.same_text]

    @property
    def table(self) -> Table:
        right = [(pair.left.right(self.rule), pair.right.right(self.rule)) for pair in self.pairs]
        counts = {key: right.count(key) for key in ((True, True), (True, False), (False, True), (False, False))}
        return Table(*counts.values())

    def counts(self) -> dict[str, int]:
        """How many pairs there are, and how many differ in each respect."""
        pairs = list(self.pairs)
        return {
            "questions": len(pairs),
            "failed": sum(not pair.answered for pair in pairs),
            "texts_differ": sum(not pair.same_text for pair in pairs),
            "answers_differ": sum(not pair.same_answer(self.rule) for pair in pairs),
            "correctness_differs": sum(not pair.same_correctness(self.rule) for pair in pairs),
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, with every differing pair and both its texts."""
        return {
            "format": "vst-comparison/1",
            "left": {"claim": self.left.claim, "digest": self.left.digest, "right": self.left.right(self.rule)},
            "right": {"claim": self.right.claim, "digest": self.right.digest, "right": self.right.right(self.rule)},
            "extraction": self.rule,
            "counts": self.counts(),
            "table": self.table.to_json(),
            "differing": [pair.to_json(self.rule) for pair in self.differing],
        }


def compare(left: Evaluation, right: Evaluation, rule: str) -> Comparison:
    """Pair two evaluations; VerificationError when one is not whole or they did not ask the same in the same way."""
    for found in (left, right):
        if not found.complete or found.missing:
            have = f"{len(found.records)} of {found.plan['count']} records"
            raise VerificationError(f"the evaluation of {found.claim} has not come to its end: {have}; resume it first")
    apart = [key for key in PINNED if left.plan.get(key) != right.plan.get(key)]
    if apart:
        told = "; ".join(f"{key}: {left.plan.get(key)!r} / {right.plan.get(key)!r}" for key in apart)
        raise VerificationError(f"the evaluations are not comparable, they differ in {', '.join(apart)}: {told[:600]}")
    for pair in Comparison(left, right, rule).pairs:
        asked = [(record.index, record.question, record.prompt, record.expected) for record in (pair.left, pair.right)]
        if asked[0] != asked[1]:
            raise VerificationError(f"the evaluations asked different questions at position {pair.left.index}")
    return Comparison(left, right, rule)
