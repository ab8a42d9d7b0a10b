"""How far the answers of each state are from those that they had to equal, position by position; pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from vst.errors import VerificationError
from vst.oracle.compare import difference, scored
from vst.oracle.record import Record
from vst.provenance.links import REFERENCE

FIRST = "record-model-1.json"
COLUMNS = 400
LEVELS = ("equal", "within", "small", "large", "broken")
LEVEL_TEXT = {
    "equal": "no difference",
    "within": "within the noise floor",
    "small": "above the floor, up to 0.1",
    "large": "above 0.1",
    "broken": "not finite, or another token",
}
LARGE = 0.1


@dataclass(frozen=True)
class Column:
    """The worst of some neighbouring positions: the probe that they belong to and the difference; None where one of
    the two records scored no common token.
    """

    probe: int
    apart: float | None


@dataclass(frozen=True)
class Comparison:
    """One record against the one that it is judged by; ``must_differ`` for a negative control."""

    name: str
    against: str
    claim: str
    must_differ: bool
    floor: float
    equal: bool
    largest: float
    positions: int
    differing: int
    columns: tuple[Column, ...]

    @property
    def as_expected(self) -> bool:
        return self.equal is not self.must_differ

    def level(self, column: Column) -> str:
        """Which of ``LEVELS`` a column is at."""
        if column.apart is None or not math.isfinite(column.apart):
            return "broken"
        if column.apart == 0.0:
            return "equal"
        if column.apart <= self.floor:
            return "within"
        return "small" if column.apart <= LARGE else "large"

    @property
    def label(self) -> str:
        """The record's name as the picture has room for it."""
        label = self.name.removeprefix("record-").removesuffix(".json")
        return label if len(label) <= 32 else f"{label[:31]}…"

    def probes(self) -> Iterator[tuple[int, int]]:
        """Where each probe begins, as (column, probe); of many probes only some."""
        starts = [n for n, one in enumerate(self.columns) if n == 0 or one.probe != self.columns[n - 1].probe]
        every = max(1, len(starts) // 16)
        yield from ((at, self.columns[at].probe) for at in starts[::every])

    def runs(self) -> Iterator[tuple[int, int, str]]:
        """Neighbouring columns of one level as (first, count, level)."""
        at = 0
        for level, group in groupby(self.columns, self.level):
            count = len(list(group))
            yield at, count, level
            at += count


def comparisons(records: Mapping[str, Record], floor: float | None) -> list[Comparison]:
    """Every record that has one to be judged by, in the order of the files; a floor of None counts as zero."""
    found = []
    for name, record in records.items():
        against = expected_of(name, record)
        if against in records and against != name:
            try:
                found.append(compare(name, record, against, records[against], floor or 0.0))
            except VerificationError:
                continue  # other probes: the check that took it says so
    return found


def expected_of(name: str, record: Record) -> str:
    """The file that a record is judged by, from what it claims to hold: A, B, or B with something wrong."""
    return FIRST if record.claim == "A" else REFERENCE if name != REFERENCE else ""


def compare(name: str, record: Record, against: str, expected: Record, floor: float) -> Comparison:
    """One comparison; VerificationError when the records answer different probes."""
    apart = difference(record, expected, floor)
    return Comparison(
        name=name,
        against=against,
        claim=record.claim,
        must_differ=record.claim.startswith("B with "),
        floor=floor,
        equal=apart.equal,
        largest=apart.largest,
        positions=apart.positions,
        differing=apart.differing,
        columns=tuple(_columns(record, expected)),
    )


def _columns(record: Record, expected: Record) -> Iterator[Column]:
    seen = {at: abs(a - b) for at, a, b in scored(record, expected)}
    places = [
        (probe, where, index)
        for probe, answer in enumerate(expected.answers)
        for where, indices in (("prompt", range(1, len(answer.prompt))), ("output", range(len(answer.output))))
        for index in indices
    ]
    width = max(1, math.ceil(len(places) / COLUMNS))
    for probe, group in groupby(places, key=lambda place: place[0]):
        apart = [seen.get(place) for place in group]
        for start in range(0, len(apart), width):
            yield Column(probe, _worst(apart[start : start + width]))


def _worst(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or any(not math.isfinite(value) for value in known):
        return None
    return max(known)
