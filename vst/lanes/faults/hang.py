"""The publisher's process is stopped, not ended: nothing fails, nothing moves, and only a deadline can tell."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from dataclasses import replace

from vst.lanes.faults.shot import Shot, half_way
from vst.lanes.sending import start_publisher
from vst.lanes.session import Session


def armed(session: Session) -> AbstractContextManager[Shot]:
    """The publisher gets ``endurance.hang_s`` for this broadcast; it is not used for another one."""
    publisher = session.publisher or start_publisher(session)
    limit = session.conf.endurance.hang_s
    publisher.deadlines = replace(publisher.deadlines, broadcast_s=limit)

    def stop() -> None:
        os.kill(session.need("publisher").pid, signal.SIGSTOP)

    return half_way(session, stop, limit)
