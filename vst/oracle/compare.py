"""Whether two records are the same, and if not, what the server looks like instead. Pure functions over stored data.

The measure is the absolute difference of log-probabilities at positions where both records scored the same token: the
prompt's tokens, and the generated ones up to the first that differs. It is judged against a noise floor that was
measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vst.errors import VerificationError
from vst.oracle.record import Answer, Record

Position = tuple[int, str, int]
"""(probe, ``prompt`` or ``output``, index)."""


@dataclass(frozen=True)
class Difference:
    """What separates ``observed`` from ``expected``: the largest difference, how many positions, and the first one."""

    floor: float
    largest: float
    positions: int
    differing: int
    token_changes: int
    ties: int
    non_finite: bool
    first: dict[str, Any] | None

    @property
    def equal(self) -> bool:
        # Two records in which nothing could be compared are not equal.
        return self.positions > 0 and not self.non_finite and self.token_changes == 0 and self.differing == 0

    @property
    def noticed(self) -> bool:
        """Whether the probes saw a difference: answers that are no numbers show that something broke, and not that."""
        return not self.non_finite and self.token_changes + self.differing > 0

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "largest_difference": self.largest if math.isfinite(self.largest) else None,
            "positions": self.positions,
            "differing": self.differing,
            "token_changes": self.token_changes,
            "near_ties": self.ties,
            "non_finite": self.non_finite,
            "first": self.first,
        }


def check_same_questions(observed: Record, expected: Record) -> None:
    """VerificationError unless both records answer the same probes."""
    if observed.probes != expected.probes or len(observed.answers) != len(expected.answers):
        raise VerificationError(
            f"the records answer different probes: {observed.probes} ({observed.claim}) and "
            f"{expected.probes} ({expected.claim})"
        )
    for number, (a, b) in enumerate(zip(observed.answers, expected.answers, strict=True)):
        if a.prompt != b.prompt:
            raise VerificationError(f"the records answer different probes: the prompts of answer {number} differ")


def difference(observed: Record, expected: Record, floor: float) -> Difference:
    """Compare two records of the same probes; ``floor`` is the largest difference that counts as none, 0 for exact."""
    check_same_questions(observed, expected)
    both = list(scored(observed, expected))
    apart = [(at, a, b) for at, a, b in both if not abs(a - b) <= floor]
    changes, ties = _token_changes(observed, expected, floor)
    firsts = [_first(at, a, b) for at, a, b in apart[:1]] + changes[:1]
    return Difference(
        floor=floor,
        largest=max((abs(a - b) for _, a, b in both), default=0.0),
        positions=len(both),
        differing=len(apart),
        token_changes=len(changes),
        ties=ties,
        non_finite=not (observed.finite() and expected.finite()),
        first=min(firsts, key=_order, default=None),
    )


def changed(found: Difference) -> str:
    """What a difference did to the answers, in a few words."""
    if found.non_finite:
        return f"left answers that are not finite, first {found.first}"
    return f"changed the answers at {found.differing} of {found.positions} positions, first {found.first}"


def spread(records: Sequence[Record]) -> Difference:
    """The noise floor of one unchanged state: the largest difference between the first record and its repeats.

    A token that changed at a near tie, measured with that floor, is noise too; any other change of token is not.
    """
    floor = max(difference(record, records[0], 0.0).largest for record in records[1:])
    return max(
        (difference(record, records[0], floor) for record in records[1:]),
        key=lambda found: (found.non_finite, found.token_changes, found.largest),
    )


def _first(at: Position, observed: float, expected: float) -> dict[str, Any]:
    pair = {"observed": observed, "expected": expected}
    shown = {key: value if math.isfinite(value) else str(value) for key, value in pair.items()}
    return {"probe": at[0], "where": at[1], "position": at[2], **shown}


def _order(first: dict[str, Any]) -> tuple[int, int, int]:
    return first["probe"], 0 if first["where"] == "prompt" else 1, first["position"]


def scored(left: Record, right: Record) -> Iterator[tuple[Position, float, float]]:
    """Every position at which both records scored the same token, with the two log-probabilities."""
    for probe, (a, b) in enumerate(zip(left.answers, right.answers, strict=True)):
        for index, (x, y) in enumerate(zip(a.prompt_logprobs, b.prompt_logprobs, strict=True), 1):
            yield (probe, "prompt", index), x, y
        shared = _shared(a, b)
        for index in range(shared):
            yield (probe, "output", index), a.output_logprobs[index], b.output_logprobs[index]


def _shared(a: Answer, b: Answer) -> int:
    """How many generated tokens are the same before the first that differs."""
    for index, (x, y) in enumerate(zip(a.output, b.output, strict=False)):
        if x != y:
            return index
    return min(len(a.output), len(b.output))


def _token_changes(left: Record, right: Record, floor: float) -> tuple[list[dict[str, Any]], int]:
    changes, ties = [], 0
    for probe, (a, b) in enumerate(zip(left.answers, right.answers, strict=True)):
        index = _shared(a, b)
        if index == len(a.output) == len(b.output):
            continue
        if _near_tie(a, b, index, floor):
            ties += 1
        else:
            changes.append({
                "probe": probe, "where": "output", "position": index,
                "observed": {"token": _token_at(a, index)}, "expected": {"token": _token_at(b, index)},
            })  # fmt: skip
    return changes, ties


def _token_at(answer: Answer, index: int) -> int | None:
    return answer.output[index] if index < len(answer.output) else None


def _near_tie(a: Answer, b: Answer, index: int, floor: float) -> bool:
    """Both records rank both tokens within the floor of each other: which one came first says nothing."""
    if index >= min(len(a.output), len(b.output)):
        return False
    pair = (a.output[index], b.output[index])
    for answer in (a, b):
        top = dict(answer.top[index])
        if not all(token in top for token in pair) or not abs(top[pair[0]] - top[pair[1]]) <= floor:
            return False
    return True


def looks_like(observed: Record, expected: Record, previous: Record, floor: float) -> str:
    """Say what a server that does not equal ``expected`` looks like, seen from the state that it had before.

    Only positions where the two states differ by more than the floor can tell them apart.
    """
    if not observed.finite():
        return "non-finite log-probabilities"
    kept = telling = arrived = 0
    olds = {at: (a, b) for at, a, b in scored(previous, expected) if not abs(a - b) <= floor}
    seen = {at: a for at, a, _ in scored(observed, expected)} | {at: a for at, a, _ in scored(observed, previous)}
    for at, (old, new) in olds.items():
        if at in seen:
            telling += 1
            kept += abs(seen[at] - old) <= floor
            arrived += abs(seen[at] - new) <= floor
    if telling and kept == telling:
        return f"no effect: equals {previous.claim} at all {telling} telling positions"
    if kept and difference(observed, previous, floor).equal:
        return f"no effect: equals {previous.claim}"
    if kept * 10 > telling:
        return f"equals {previous.claim} in part: at {kept} of {telling} telling positions"
    if arrived * 10 > telling:
        return f"equals {expected.claim} in part: at {arrived} of {telling} telling positions"
    counts = f"{telling} telling positions, {kept} and {arrived} equal"
    return f"looks like neither {previous.claim} nor {expected.claim}: {counts}"
