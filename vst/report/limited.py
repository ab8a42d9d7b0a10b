"""Drawing within a time limit: the end of a run must not wait for a page."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from vst.insist import Insistent


class TooSlow(Exception):
    """The limit was over before the work was."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlow inside the block when ``seconds`` are over; outside the main thread there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    insistent = Insistent()

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        insistent.throw(TooSlow(f"not drawn within {seconds:g} s"))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        insistent.arrived()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
