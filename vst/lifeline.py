"""Processes that must not outlive the one that started them.

``die_with_parent`` is for a child of ours; ``guarded`` runs a foreign command under ``vst.guard``, which ends the whole
tree when this process is gone, however it went.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when ``parent`` dies; exits at once if it is dead already."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that it can be waited for."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) was refused")


def guarded(command: list[str]) -> list[str]:
    """The command line that runs ``command`` under the guard; the guard ends it when its standard input closes."""
    return [sys.executable, "-I", str(Path(__file__).with_name("guard.py")), *command]


def end_at_once() -> None:
    """Kill everything that this process started, the deepest first, so that no guard is gone before its tree."""
    for _ in range(3):
        members = descendants(os.getpid())
        below = [member for member in members if _parent(member) != os.getpid()]
        for member in below or members:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(below or members, timeout=2)
        if not below:
            return


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def descendants(pid: int) -> list[psutil.Process]:
    """All living descendants of ``pid``; empty when it is gone."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
