"""How far a push has come, and how fast it may go."""

from __future__ import annotations

import time
from collections.abc import Callable

PROGRESS_S = 0.05


class Pace:
    """Counts the bytes of a push of ``total``; ``tell`` hears of them now and then. ``limit`` in bytes a second."""

    def __init__(self, total: int, limit: float | None, tell: Callable[[int, int], None]) -> None:
        self._total = total
        self._limit = limit
        self._tell = tell
        self._begun = self._told = time.monotonic()
        self._done = 0

    def passed(self, nbytes: int) -> None:
        """``nbytes`` more have left; returns when that many may have."""
        self._done += nbytes
        if self._limit:
            time.sleep(max(0.0, self._begun + self._done / self._limit - time.monotonic()))
        if time.monotonic() - self._told >= PROGRESS_S or self._done == self._total:
            self._told = time.monotonic()
            self._tell(self._done, self._total)
