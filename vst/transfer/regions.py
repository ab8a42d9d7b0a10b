"""Which parts of a stretch of memory are free: the lowest that fits is taken, so that the same pages are used again."""

from __future__ import annotations

from vst.transfer.wire import aligned

STEP = 1 << 16
"""Regions begin at multiples of this, so that a few sizes do not leave gaps which fit nothing."""


def rounded(nbytes: int) -> int:
    return -(-aligned(nbytes) // STEP) * STEP


class Regions:
    """Hands out regions of ``nbytes`` bytes of memory and takes them back."""

    def __init__(self, nbytes: int) -> None:
        self._free = [(0, nbytes)]

    def take(self, nbytes: int) -> int | None:
        """Where ``nbytes`` bytes are free from now on no more; None if there is no such place."""
        size = rounded(nbytes)
        for index, (begin, end) in enumerate(self._free):
            if end - begin >= size:
                self._free[index : index + 1] = [(begin + size, end)] if end - begin > size else []
                return begin
        return None

    def give(self, begin: int, nbytes: int) -> None:
        """Take back what ``take`` gave for ``nbytes``."""
        merged: list[tuple[int, int]] = []
        for one in sorted([*self._free, (begin, begin + rounded(nbytes))]):
            if merged and merged[-1][1] == one[0]:
                merged[-1] = (merged[-1][0], one[1])
            else:
                merged.append(one)
        self._free = merged

    def __repr__(self) -> str:
        return f"Regions({self._free})"
