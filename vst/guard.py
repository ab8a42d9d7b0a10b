"""Runs one command and ends its whole process tree when standard input closes, a signal comes or the command ends.

Started as a script, with nothing but the standard library: it must live when everything else of ours is gone. It holds
the read end of a pipe whose write end only the parent has; the kernel closes it also when the parent was killed with
SIGKILL. As a child subreaper it inherits every descendant whose own parent died, so that no worker escapes by a double
fork or a new session.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 8.0


def stat_fields(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the command name: state, parent, …; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def tree(root: int) -> list[int]:
    """All living descendants of ``root``, without zombies."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = stat_fields(int(name)) if name.isdigit() else []
        if fields and fields[0] != "Z":
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def signal_tree(number: int) -> int:
    members = tree(os.getpid())
    for pid in members:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return len(members)


def end_tree() -> None:
    """SIGTERM to all, some seconds of grace, then SIGKILL until nobody is left."""
    signal_tree(signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and tree(os.getpid()):
        reap()
        time.sleep(0.05)
    while signal_tree(signal.SIGKILL):
        reap()
        time.sleep(0.05)


def child_setup() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(command: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)

    def wakes(number: int, frame: FrameType | None) -> None:
        """The wake-up descriptor does the work; a handler must be there for it to be written."""

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, wakes)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=child_setup)
    while child.poll() is None:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready and not os.read(0, 4096):
            break
        if woken in ready and any(number != signal.SIGCHLD for number in os.read(woken, 4096)):
            break
    end_tree()
    code = child.wait() if child.returncode is None else child.returncode
    reap()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
