"""How fast bytes go and how long it will take: from what was seen, never from what was hoped."""

from __future__ import annotations

import time
from dataclasses import dataclass

EVERY_S = 2.0


@dataclass(frozen=True)
class Transfer:
    """A transfer at one moment; the rate in bytes a second is None until two moments were seen."""

    what: str
    done: int
    total: int
    rate: float | None

    @property
    def complete(self) -> bool:
        return self.done >= self.total

    @property
    def left_s(self) -> float | None:
        """The seconds that the rest takes at this rate; None where there is no rate."""
        return (self.total - self.done) / self.rate if self.rate else None

    def __str__(self) -> str:
        text = f"{self.what} {self.done / 1e6:,.1f} of {self.total / 1e6:,.1f} MB"
        if self.rate is not None:
            text += f", {self.rate / 1e6:,.1f} MB/s"
        return text if self.left_s is None else f"{text}, {self.left_s:.0f} s left"


class Rate:
    """Follows one transfer after the other; short ones never become ``due``."""

    def __init__(self) -> None:
        self._mark: tuple[float, int] | None = None
        self._last: Transfer | None = None

    def at(self, what: str, done: int, total: int) -> Transfer:
        """The transfer now, with the rate since the last moment that was ``due``, or since its beginning."""
        now = time.monotonic()
        if self._mark is None or (self._last is not None and (done < self._last.done or self._last.complete)):
            self._mark = (now, done)
        seconds = now - self._mark[0]
        rate = (done - self._mark[1]) / seconds if seconds > 0 and done > self._mark[1] else None
        self._last = Transfer(what, done, total, rate)
        return self._last

    def due(self) -> bool:
        """Whether it is time for a line: some seconds after the last one, while the transfer still goes on."""
        if self._last is None or self._mark is None or self._last.complete:
            return False
        now = time.monotonic()
        if now - self._mark[0] < EVERY_S:
            return False
        self._mark = (now, self._last.done)
        return True
