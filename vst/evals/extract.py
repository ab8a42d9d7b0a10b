"""Reading the answer out of a text: strictly, by the marker of GSM8K, and flexibly.

Both look at the first answer only. A model that was asked one question often goes on with questions of its own; what
comes after the first stop is not an answer to ours. ``VERSION`` goes up when any text could be read in another way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from vst.evals import number

VERSION = "vst-extract/1"
MARKER = "####"
STOPS = ("\nQuestion:", "\nQ:", "\nProblem:", "\nUser:", "\nuser:", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "</s>")
"""Where run-on text begins, besides the stops that were sent."""

_BEFORE_NUMBER = re.compile(r"(?:[\s*_`(\[{:=~≈]|\\[(\[]|\\(?:boxed|text)\s*\{)*")
_ANSWER = re.compile(r"\\boxed\s*\{|\banswer\s*(?:is|are|was|[:=])", re.IGNORECASE)


@dataclass(frozen=True)
class Extracted:
    """The value read by each rule; None where the rule finds none."""

    strict: Fraction | None
    flexible: Fraction | None


def extract(text: str, stops: Sequence[str] = ()) -> Extracted:
    """Both readings of an answer; ``stops`` are the stop strings that were sent with the question."""
    answer = before_stop(text, stops)
    return Extracted(strict(answer), flexible(answer))


def before_stop(text: str, stops: Sequence[str] = ()) -> str:
    """The text before the first stop; a text that begins with one has it behind it already."""
    begun = len(text) - len(text.lstrip())
    ends = [at for stop in (*STOPS, *stops) if stop and (at := text.find(stop, begun)) > begun]
    return text[: min(ends)] if ends else text


def strict(answer: str) -> Fraction | None:
    """The number right after the first ``####``; currency and emphasis may stand before it, units after it."""
    _, marker, rest = answer.partition(MARKER)
    line = rest.split("\n", 1)[0]
    begun = _BEFORE_NUMBER.match(line)
    at = begun.end() if begun else 0
    found = next(number.numbers(_spaced(line[at:])), None) if marker else None
    return found.value if found is not None and found.start == 0 else None


def flexible(answer: str) -> Fraction | None:
    """The first number after the first marker (``####``, else ``\\boxed{`` or ``answer is``), else the last number."""
    before, marker, rest = answer.partition(MARKER)
    if marker and (found := number.first(_spaced(rest.split("\n", 1)[0]))) is not None:
        return found
    named = _ANSWER.search(before)
    if named is not None:
        line = before[named.end() :].lstrip().split("\n", 1)[0]
        if (found := number.first(line)) is not None:
            return found
    return number.last(before)


def _spaced(line: str) -> str:
    """After the marker stands one number: there a space between groups of three digits separates thousands."""
    return re.sub(r"(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d,/])", lambda m: m[1] + m[2].replace(" ", ""), line)
