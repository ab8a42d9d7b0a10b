"""The search for the smallest set of parts that must be left out for the rest to arrive. Pure: a test is a function.

``good(left_out)`` says whether everything arrives when the parts ``left_out`` are not updated. Known beforehand is that
nothing is wrong with all of them left out, and something is with none. The search is QuickXplain (Junker, AAAI 2004),
which finds a set of which no part can be spared, with about ``2 · k · log2(n / k)`` tests for k of n parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Good = Callable[[tuple[str, ...]], bool]


class OutOfPushes(Exception):
    """The search has used all the pushes that it was given."""


@dataclass(frozen=True)
class Narrowed:
    """The smallest set found, and whether it was shown that no part of it can be spared."""

    parts: tuple[str, ...]
    minimal: bool


def narrow(parts: Sequence[str], first: Sequence[str], good: Good) -> Narrowed:
    """The smallest set among ``parts``; ``first`` are suspects, tried as one set before anything else."""
    search = _Search(tuple(parts), good)
    try:
        suspected = tuple(part for part in parts if part in set(first))
        start = tuple(parts)
        if suspected and len(suspected) < len(parts) and search.good(suspected):
            start = suspected
        return Narrowed(search.xplain((), False, start), True)
    except OutOfPushes:
        return Narrowed(search.best, False)


class _Search:
    def __init__(self, parts: tuple[str, ...], good: Good) -> None:
        self.best = parts
        self._good = good

    def good(self, left_out: tuple[str, ...]) -> bool:
        found = self._good(left_out)
        if found and len(left_out) < len(self.best):
            self.best = left_out
        return found

    def xplain(self, kept: tuple[str, ...], grown: bool, among: tuple[str, ...]) -> tuple[str, ...]:
        """The parts of ``among`` that are needed beside those already ``kept``."""
        if grown and self.good(kept):
            return ()
        if len(among) == 1:
            return among
        half = len(among) // 2
        left, right = among[:half], among[half:]
        needed_right = self.xplain((*kept, *left), True, right)
        needed_left = self.xplain((*kept, *needed_right), bool(needed_right), left)
        return (*needed_left, *needed_right)
