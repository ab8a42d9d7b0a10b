"""The publisher's process is killed: the workers' broadcast loses its sender."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager

from vst.lanes.faults.shot import Shot, half_way
from vst.lanes.session import Session


def armed(session: Session) -> AbstractContextManager[Shot]:
    def kill() -> None:
        os.kill(session.need("publisher").pid, signal.SIGKILL)

    return half_way(session, kill)
