"""What an evaluation showed: paired differences with their intervals, and the questions whose answers changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vst.report.material import Material

PAIRED = "eval.paired"
RECORDS = ("eval.records", "eval.reference", "eval.distinct")
LEFT, WIDTH, STEP = 230, 740, 34
SHOWN = 40


@dataclass(frozen=True)
class Paired:
    """One paired comparison: the change of accuracy with its interval, and how many questions flipped each way."""

    name: str
    difference: float
    low: float
    high: float
    margin: float
    n: int
    lost: int
    gained: int
    p: float | None
    smallest: float | None
    accuracy: tuple[Any, ...]


@dataclass(frozen=True)
class Flips:
    """The questions whose record changed in one comparison, by their indexes."""

    check: str
    outcome: str
    indexes: tuple[Any, ...]
    more: int


@dataclass(frozen=True)
class Quality:
    """The section; ``marks`` are the heights and places of the picture, ``zero`` and ``margins`` its lines."""

    pairs: tuple[Paired, ...]
    flips: tuple[Flips, ...]
    zero: float
    margins: tuple[float, ...]
    marks: tuple[tuple[Paired, float, float, float, float], ...]


def quality(material: Material) -> Quality | None:
    """The section of a run that compared evaluations; None for another one."""
    pairs = tuple(_pairs(material))
    flips = tuple(_flips(material))
    if not pairs and not flips:
        return None
    half = 1.15 * max([0.01, *(max(abs(one.low), abs(one.high), one.margin) for one in pairs)])

    def at(value: float) -> float:
        return round(LEFT + WIDTH * (value + half) / (2 * half), 1)

    marks = tuple(
        (one, 16.0 + STEP * number, at(one.low), at(one.difference), at(one.high)) for number, one in enumerate(pairs)
    )
    margin = max((one.margin for one in pairs), default=0.0)
    return Quality(pairs, flips, at(0.0), (at(-margin), at(margin)) if margin else (), marks)


def _pairs(material: Material) -> Iterator[Paired]:
    check = material.check(PAIRED)
    observed = check.get("observed") if check else None
    for name, one in observed.items() if isinstance(observed, Mapping) else ():
        try:
            low, high = one["interval"]
            counts = (int(one["n"]), int(one["lost"]), int(one["gained"]))
            at = 0.0 if one["difference"] is None else float(one["difference"])
            told = (one.get("mcnemar_p"), one.get("smallest_effect"), tuple(one.get("accuracy") or ()))
            yield Paired(str(name), at, float(low), float(high), float(one.get("margin") or 0.0), *counts, *told)
        except (KeyError, TypeError, ValueError):
            continue  # shown with the check as it stands


def _flips(material: Material) -> Iterator[Flips]:
    for _, check in material.checks():
        observed = check.get("observed")
        if check.get("id") in RECORDS and isinstance(observed, Mapping):
            found = observed.get("differing")
            indexes = tuple(found) if isinstance(found, list) else ()
            shown = indexes[:SHOWN]
            yield Flips(str(check.get("id")), str(check.get("outcome")), shown, len(indexes) - len(shown))
