"""An exception that a signal raises and that arrives, although Python or a library drops it on its way.

A handler runs between any two instructions of the main thread: also in a weak reference's callback or a ``__del__``,
where Python prints an exception and goes on, and inside of an ``except BaseException`` of a library. A signal that
came there would be lost, and the run would go on as if nobody had asked for its end.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any, NoReturn

REMINDER_S = 0.5
"""How long an exception may be dropped before it is raised again."""


class Insistent:
    """Raises one exception at a time in the main thread, and again until it is handled or ``arrived`` is called.

    Uses SIGALRM and the interval timer, from ``throw`` to ``arrived``.
    """

    def __init__(self, reminder_s: float = REMINDER_S) -> None:
        self._reminder_s = reminder_s
        self._thrown: BaseException | None = None
        self._before: Any = None

    def throw(self, error: BaseException) -> NoReturn:
        """Raise ``error`` now, from a signal's handler; it takes the place of one that is still on its way."""
        if self._thrown is None:
            self._before = signal.signal(signal.SIGALRM, self._remind)
        self._thrown = error
        signal.setitimer(signal.ITIMER_REAL, self._reminder_s, self._reminder_s)
        raise error

    def arrived(self) -> None:
        """Nothing is raised again from now on."""
        if self._thrown is None:
            return
        self._thrown = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _remind(self, number: int, frame: FrameType | None) -> None:
        if self._thrown is not None and not _handled(self._thrown):
            raise self._thrown


def _handled(error: BaseException) -> bool:
    """Whether the main thread is in an ``except``, ``finally`` or ``with`` that ``error`` came through."""
    seen: set[int] = set()
    waiting = [sys.exc_info()[1]]
    while waiting:
        one = waiting.pop()
        if one is error:
            return True
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            waiting += [one.__context__, one.__cause__]
    return False
