"""A comparison as text: every flip with both texts, then the table and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vst.evals.compare import Comparison
from vst.evals.judging import Floor, Rules, statistics

TEXT = 400


def lines(found: Comparison, floor: Floor | None, rules: Rules) -> Iterator[str]:
    """What is printed, line by line; texts are shown as Python writes them, so that nothing in them moves a cursor."""
    for pair in found.differing:
        shown = pair.to_json(rules.extraction)
        yield f"question {shown['index']}, right is {shown['expected']}"
        yield f"  left   {_side(shown['left'])}"
        yield f"  right  {_side(shown['right'])}"
    counts, said = found.counts(), statistics(found, floor, rules)
    yield ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items())
    yield from table_lines(said)
    if floor is None:
        yield "noise floor: no repeat was given, so it is not known"
    else:
        yield f"noise floor: {floor.texts} texts and {floor.correctness} correctnesses changed in a repeat"


def table_lines(said: dict[str, Any]) -> Iterator[str]:
    """The statistics of one comparison."""
    named = {"right in both": "both", "lost": "lost", "gained": "gained", "right in neither": "neither"}
    yield ", ".join(f"{name} {said[key]}" for name, key in named.items())
    low, high = said["interval"]
    yield f"McNemar's exact p = {said['mcnemar_p']:.4g}"
    at = "none" if said["difference"] is None else f"{said['difference']:+.4f}"
    interval = f"{said['confidence']:.0%} interval {low:+.4f} to {high:+.4f} ({said['interval_method']})"
    yield f"paired difference {at}, {interval}"
    effect = said["smallest_effect"]
    told = "no loss at all" if effect is None else f"a loss of {effect:.4f} or more"
    yield f"this sample shows {told} with probability {said['power']:g}; margin {said['margin']:g}"


def _side(side: dict[str, Any]) -> str:
    mark = "right" if side["right"] else "wrong"
    text = side["text"] if side["text"] is not None else f"failed: {side['error']}"
    return f"{mark}, read as {side['answer']}: {text[:TEXT]!r}"
