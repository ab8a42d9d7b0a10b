"""What a run can see of its servers' memory: the resident bytes of all processes of those that it started."""

from __future__ import annotations

from contextlib import suppress

import psutil

from vst.lanes.session import Session
from vst.lifeline import descendants


def source(session: Session) -> str:
    """What ``used`` reads, or why it reads nothing."""
    if any(server.process is None for server in session.servers):
        return "a server that this run did not start"
    return "resident memory of all processes of the servers"


def used(session: Session) -> int | None:
    """Bytes; None where a server was not started by this run."""
    processes = [server.process for server in session.servers]
    if any(process is None for process in processes):
        return None
    return sum(_resident(process.pid) for process in processes if process is not None)


def _resident(pid: int) -> int:
    total = 0
    for member in descendants(pid):
        with suppress(psutil.NoSuchProcess):
            total += int(member.memory_info().rss)
    return total
