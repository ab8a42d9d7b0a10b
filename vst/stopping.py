"""Ending a run by signals: the first ends it in order, the second at once; both leave a verdict.

The first one raises ``Interrupted`` wherever the run is; a second one raises it again where something on the way out
cleans up and waits. Either arrives although something on its way drops it (``vst.insist``). Once the run has come to
its end, a signal only cuts short what ``orderly`` does: the processes that it waits for are killed. The verdict is
written in any case.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from vst import early_signals
from vst.insist import Insistent
from vst.verdict import EXIT_INTERRUPTED, EXIT_TERMINATED

SIGNALS = {
    signal.SIGINT: EXIT_INTERRUPTED,
    signal.SIGTERM: EXIT_TERMINATED,
    signal.SIGHUP: EXIT_TERMINATED,
    signal.SIGUSR2: EXIT_TERMINATED,
}


DUPLICATE_S = 0.25
"""A scheduler signals a step and its launcher passes it on: what comes so soon after the first is the same signal."""


class Interrupted(BaseException):
    """A signal asked the run to end; ``code`` is the exit code that says so."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(name)
        self.code = code


class _AtOnce(BaseException):
    """A second signal, raised inside of ``orderly`` and nowhere else."""


class Stopping:
    """The handlers of one run; ``hurried`` is whether a signal came after the end had begun.

    One within ``duplicate_s`` of the first is the same signal, passed on.
    """

    def __init__(self, duplicate_s: float = DUPLICATE_S) -> None:
        self.hurried = False
        self._insistent = Insistent()
        self._duplicate_s = duplicate_s
        self._signalled: float | None = None
        self._inside = False
        self._on_the_way = False
        self._top: FrameType | None = None
        self._restore = early_signals.hold(SIGNALS)

    def catch(self) -> None:
        """From now on a signal ends the run with a verdict; one that came earlier does so at once.

        The caller answers ``Interrupted`` itself, and calls ``ending`` first then.
        """
        self._top = sys._getframe(1)
        for number in SIGNALS:
            signal.signal(number, self._first)
        if (early := early_signals.take()) is not None:
            self._first(early, None)

    def ending(self) -> None:
        """The run has come to its end, one way or another: a signal can only hurry it now."""
        self._insistent.arrived()
        self._on_the_way = False
        for number in SIGNALS:
            signal.signal(number, self._again)

    def orderly(self, work: Callable[[], None], hurry: Callable[[], None]) -> None:
        """Do ``work`` to its end, or until a second signal comes; then, or when it came before, call ``hurry``."""
        try:
            self._inside = True
            if not self.hurried:
                work()
            self._inside = False
            self._insistent.arrived()
        except _AtOnce:
            self._insistent.arrived()
        except BaseException:
            self._inside = False
            self._insistent.arrived()
            raise
        if self.hurried:
            hurry()

    def ignore(self) -> None:
        """The verdict is being written: that is short, must be whole, and is what a second signal is to leave."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """The handlers of before the run."""
        self._restore()

    def _first(self, number: int, frame: FrameType | None) -> NoReturn:
        self.ending()
        self._signalled = time.monotonic()
        self._on_the_way = True
        self._insistent.throw(_interruption(number))

    def _again(self, number: int, frame: FrameType | None) -> None:
        if self._signalled is not None and time.monotonic() - self._signalled < self._duplicate_s:
            return
        self.hurried = True
        if self._inside:
            self._inside = False
            self._insistent.throw(_AtOnce())
        if self._on_the_way and not self._arrived(frame):
            self._insistent.throw(_interruption(number))

    def _arrived(self, frame: FrameType | None) -> bool:
        """Whether the first interruption is being answered already: another would not be."""
        answering = frame is not None and frame.f_code is Stopping.ending.__code__
        return frame is self._top or answering


def _interruption(number: int) -> Interrupted:
    return Interrupted(SIGNALS[signal.Signals(number)], signal.Signals(number).name)
