"""The connection of the call that carries the update is cut: the server works on, the publisher hears nothing more."""

from __future__ import annotations

from contextlib import AbstractContextManager

from vst.lanes.faults.relay import UPDATE, Rule, detour
from vst.lanes.faults.shot import Shot
from vst.lanes.session import Session


def armed(session: Session) -> AbstractContextManager[Shot]:
    half = session.conf.endurance.fault_push_s / 2
    return detour(session, Rule(cut_after=lambda path: half if path == UPDATE else None))
