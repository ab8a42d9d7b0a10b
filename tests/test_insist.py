from __future__ import annotations

import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

import pytest

from vst.cluster.launch import Stopped, signals_raise
from vst.insist import Insistent
from vst.snapshot.rollback import terminated_as_exception
from vst.stopping import Interrupted, Stopping

LONG_S = 20.0
"""What is waited for when nothing ends it."""
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Thing:
    """Something whose end can be watched."""


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def in_a_weak_reference() -> None:
    """SIGTERM while Python calls a weak reference's callback, as it does in ``import``: what it raises is dropped."""
    thing = Thing()
    watcher = weakref.ref(thing, lambda gone: terminate())
    del thing
    assert watcher() is None


def in_a_finalizer() -> None:
    class Closing:
        def __del__(self) -> None:
            terminate()

    Closing()


def in_a_library() -> None:
    with suppress(BaseException):
        terminate()
        time.sleep(LONG_S)


@contextmanager
def the_run() -> Iterator[None]:
    stopping = Stopping()
    try:
        stopping.catch()
        yield
    finally:
        stopping.ending()
        stopping.restore()


@pytest.mark.parametrize("lose", [in_a_weak_reference, in_a_finalizer, in_a_library])
@pytest.mark.parametrize(
    ("context", "expected"),
    [(the_run, Interrupted), (signals_raise, Stopped), (terminated_as_exception, SystemExit)],
)
def test_a_signal_that_comes_where_exceptions_are_dropped_ends_what_runs(
    context: Callable[[], AbstractContextManager[None]], expected: type[BaseException], lose: Callable[[], None]
) -> None:
    before = signal.getsignal(signal.SIGALRM)
    begun = time.monotonic()
    with pytest.raises(expected), context():
        lose()
        time.sleep(LONG_S)
    assert time.monotonic() - begun < LONG_S / 2
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_waits_at_the_end_of_a_run_is_cut_short_although_the_signal_was_dropped() -> None:
    made, done = Stopping(duplicate_s=0.0), []
    made.ending()

    def work() -> None:
        in_a_weak_reference()
        time.sleep(LONG_S)
        done.append("waited")

    made.orderly(work, lambda: done.append("hurried"))
    made.restore()
    assert done == ["hurried"]


def test_an_exception_on_its_way_is_not_raised_a_second_time_in_what_cleans_up() -> None:
    made, done = Insistent(reminder_s=0.05), []

    def throw(number: int, frame: FrameType | None) -> None:
        made.throw(Interrupted(143, "SIGTERM"))

    @contextmanager
    def block() -> Iterator[None]:
        try:
            yield
        finally:
            time.sleep(0.3)
            done.append("finally in a generator")

    before = signal.signal(signal.SIGTERM, throw)
    try:
        with pytest.raises(ValueError, match="in its place") as caught:
            try:
                with block():
                    terminate()
            except BaseException:
                time.sleep(0.3)
                done.append("except")
                try:
                    raise ValueError("in its place")
                finally:
                    time.sleep(0.3)
                    done.append("finally of another")
    finally:
        made.arrived()
        signal.signal(signal.SIGTERM, before)
    assert done == ["finally in a generator", "except", "finally of another"]
    assert isinstance(caught.value.__context__, Interrupted)
