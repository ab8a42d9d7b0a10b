"""Every process of a server is killed, as by a machine that runs out of memory. Only for a server of ours."""

from __future__ import annotations

from contextlib import AbstractContextManager

from vst.errors import VerificationError
from vst.lanes.faults.shot import Shot, half_way
from vst.lanes.session import Session


def armed(session: Session) -> AbstractContextManager[Shot]:
    """The last server is the one that is killed."""
    process = session.servers[-1].process
    if process is None:
        raise VerificationError("fault.server_killed: a server that this run did not start is not killed")
    return half_way(session, process.kill)
