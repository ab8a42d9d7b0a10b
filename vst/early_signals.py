"""Signals that come before a run can answer them with a verdict: they are remembered, not lost and not obeyed.

Blocking them would not do: a library's threads do not block them, and a handler runs whichever thread they come to.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

_came: list[int] = []


def hold(numbers: Iterable[signal.Signals]) -> Callable[[], None]:
    """Remember these signals from now on; the function that is returned puts the handlers of before back."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number in before:
        signal.signal(number, _remember)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


@contextmanager
def postponed(numbers: Collection[signal.Signals]) -> Iterator[None]:
    """Let something finish that must not be cut in two; a signal that came meanwhile is raised after it.

    What is started inside does not see the signals either: a terminal sends Ctrl-C to all processes at once.
    """
    restore = hold(numbers)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        restore()
        if (came := take()) is not None:
            signal.raise_signal(came)


def _remember(number: int, frame: FrameType | None) -> None:
    _came.append(number)


def take() -> int | None:
    """The first signal that was remembered, once; None when none came."""
    first = _came[0] if _came else None
    _came.clear()
    return first
