from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from vst.lifeline import guarded
from vst.stopping import Interrupted, Stopping


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    made = Stopping(duplicate_s=0.0)
    made.catch()
    yield made
    made.restore()


def test_the_first_signal_is_an_interruption_with_its_exit_code(stopping: Stopping) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)):
        stopping.catch()
        with pytest.raises(Interrupted) as caught:
            os.kill(os.getpid(), number)
        assert caught.value.code == code


def test_a_signal_that_came_before_the_run_could_answer_is_answered_then() -> None:
    made = Stopping()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            made.catch()
    finally:
        made.restore()


def test_a_second_signal_cuts_short_what_is_waited_for_and_nothing_else(stopping: Stopping) -> None:
    done: list[str] = []
    stopping.ending()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        done.append("waited")

    begun = time.monotonic()
    stopping.orderly(work, lambda: done.append("hurried"))
    assert done == ["hurried"] and time.monotonic() - begun < 3
    os.kill(os.getpid(), signal.SIGINT)  # outside of it a signal does nothing
    stopping.orderly(lambda: done.append("work"), lambda: done.append("again"))
    assert done == ["hurried", "again"]


def test_a_second_signal_on_the_way_out_does_not_wait_for_what_cleans_up() -> None:
    made, done = Stopping(duplicate_s=0.0), []

    def lane() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
            done.append("cleaned up")
            raise

    begun = time.monotonic()
    try:
        made.catch()
        lane()
    except Interrupted as stop:
        os.kill(os.getpid(), signal.SIGINT)  # while it is answered nothing more is raised
        made.ending()
        os.kill(os.getpid(), signal.SIGINT)
        done.append(str(stop))
    finally:
        made.restore()
    assert done == ["SIGINT"] and made.hurried and time.monotonic() - begun < 3


def test_without_a_second_signal_the_work_is_done_and_nothing_is_hurried(stopping: Stopping) -> None:
    done: list[str] = []
    stopping.ending()
    stopping.orderly(lambda: done.append("work"), lambda: done.append("hurried"))
    assert done == ["work"] and not stopping.hurried


def test_an_error_of_the_work_is_not_swallowed(stopping: Stopping) -> None:
    def work() -> None:
        raise ValueError("broken")

    stopping.ending()
    with pytest.raises(ValueError, match="broken"):
        stopping.orderly(work, lambda: None)
    os.kill(os.getpid(), signal.SIGINT)  # and a later signal raises nothing


TREE = """
import subprocess, sys, time
from vst.lifeline import end_at_once, guarded
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
child = subprocess.Popen(guarded([sys.executable, "-c", stubborn]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
import psutil, os
members = psutil.Process(os.getpid()).children(recursive=True)
print(*(one.pid for one in members), flush=True)
begun = time.monotonic()
end_at_once()
print(time.monotonic() - begun, flush=True)
time.sleep(99)
"""


def test_everything_below_is_killed_at_once_although_it_ignores_being_asked() -> None:
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        took = float(parent.stdout.readline())
        alive = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
        parent.kill()
    assert len(pids) == 2 and alive == [] and took < 3
    assert guarded([]), "the tree above has a guard in it"


def test_the_same_signal_passed_on_by_a_launcher_is_not_a_second_one() -> None:
    made, done = Stopping(), []
    try:
        with pytest.raises(Interrupted):
            made.catch()
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        made.ending()
        made.orderly(lambda: done.append("work"), lambda: done.append("hurried"))
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)
        made.orderly(lambda: done.append("work"), lambda: done.append("hurried"))
    finally:
        made.restore()
    assert done == ["work", "hurried"]
