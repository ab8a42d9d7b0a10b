from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from vst.guard import stat_fields, tree
from vst.lifeline import descendants, guarded


def wait_for(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to hold in time"
        time.sleep(0.02)


def run(*command: str) -> int:
    """The exit code of a guarded command whose standard input stays open."""
    with subprocess.Popen(guarded(list(command)), stdin=subprocess.PIPE) as guard:
        return guard.wait(20)


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_guard_ends_with_the_code_of_its_command(code: int) -> None:
    assert run(sys.executable, "-c", f"raise SystemExit({code})") == code


def test_a_command_killed_by_a_signal_gives_the_code_that_a_shell_would_give() -> None:
    assert run(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)") == 137


def test_a_child_that_outlives_the_command_is_ended_with_it() -> None:
    script = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True)"
    command = guarded([sys.executable, "-c", script])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout is not None
        orphan = int(guard.stdout.readline())
        assert guard.wait(20) == 0
    assert not psutil.pid_exists(orphan)


def test_the_command_ends_when_standard_input_closes() -> None:
    with subprocess.Popen(guarded(["sleep", "60"]), stdin=subprocess.PIPE) as guard:
        wait_for(lambda: bool(descendants(guard.pid)), 10)
        assert guard.stdin is not None
        guard.stdin.close()
        assert guard.wait(10) == 143


def test_a_signal_to_the_guard_ends_the_command() -> None:
    with subprocess.Popen(guarded(["sleep", "60"]), stdin=subprocess.PIPE) as guard:
        wait_for(lambda: bool(descendants(guard.pid)), 10)
        guard.terminate()
        assert guard.wait(10) == 143


def test_the_command_dies_with_a_guard_that_was_killed() -> None:
    with subprocess.Popen(guarded(["sleep", "60"]), stdin=subprocess.PIPE) as guard:
        wait_for(lambda: bool(descendants(guard.pid)), 10)
        members = descendants(guard.pid)
        guard.kill()
        guard.wait()
    assert psutil.wait_procs(members, timeout=5)[1] == []


def test_the_guard_needs_nothing_of_the_package_or_the_environment() -> None:
    assert guarded(["x"])[:2] == [sys.executable, "-I"]
    with subprocess.Popen(guarded(["true"]), stdin=subprocess.PIPE, env={}) as guard:
        assert guard.wait(20) == 0


def test_a_process_name_with_spaces_and_parentheses_does_not_confuse_the_tree() -> None:
    name = "a) R 1 (b"
    rename = f"import time; open('/proc/self/comm', 'w').write({name!r}); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", rename], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            assert int(stat_fields(child.pid)[1]) == os.getpid()
            assert child.pid in tree(os.getpid())
        finally:
            child.kill()


def test_a_process_that_is_gone_has_no_descendants_and_no_fields() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert descendants(child.pid) == [] and stat_fields(child.pid) == []
