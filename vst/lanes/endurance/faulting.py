"""Making every fault that is asked for, one after the other, and coming back from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from vst.config import FAULTS
from vst.lanes.endurance.recovery import Recovered, recover
from vst.lanes.faults import control_plane_cut, hang, publisher_killed, server_killed, update_refused
from vst.lanes.faults.aftermath import EXPECTED, fault_check, look
from vst.lanes.faults.shot import Shot
from vst.lanes.sending import start_publisher
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, transact
from vst.oracle.record import Record
from vst.verdict import Check, Outcome

ARMED: Mapping[str, Callable[[Session], AbstractContextManager[Shot]]] = {
    "publisher_killed": publisher_killed.armed,
    "control_plane_cut": control_plane_cut.armed,
    "update_refused": update_refused.armed,
    "hang": hang.armed,
    "server_killed": server_killed.armed,
}


@dataclass
class Faults:
    """The checks and recoveries so far; ``made`` counts the faults that were really made."""

    checks: list[Check] = field(default_factory=list)
    recoveries: list[Recovered] = field(default_factory=list)
    made: int = 0


def run_faults(session: Session, states: Mapping[str, Record], found: Faults) -> None:
    """Every fault in the order of ``FAULTS``; after one from which the servers did not come back, no other is made."""
    for name in FAULTS:
        if (reason := left_out(session, name)) is not None:
            found.checks.append(Check(f"fault.{name}", Outcome.NOT_APPLICABLE, None, EXPECTED, reason=reason))
        elif found.recoveries and not found.recoveries[-1].good:
            found.checks.append(not_made(name, f"the servers did not come back after {found.recoveries[-1].fault}"))
        else:
            found.made += 1
            found.checks.append(make(session, name))
            session.progress.say(f"recovering after {name}")
            found.recoveries.append(recover(session, name, states))


def left_out(session: Session, name: str) -> str | None:
    """Why a fault is not made, as the configuration declares it."""
    if name not in session.conf.endurance.faults:
        return "declared by endurance.faults: this fault was not asked for"
    if name == "server_killed" and not session.conf.server.capabilities.kill:
        return "declared by server.capabilities.kill=false: a server that this run did not start is not killed"
    return None


def not_made(name: str, why: str) -> Check:
    return Check(f"fault.{name}", Outcome.INCONCLUSIVE, None, EXPECTED, reason=f"not made: {why}")


def make(session: Session, name: str) -> Check:
    """One push that is broken in the middle, and the look at what is left."""
    session.progress.say(f"fault {name} in the middle of a push")
    failure = None
    session.run.event("fault", name=name)
    with ARMED[name](session) as shot:
        try:
            transact(
                session, Push("checkpoint", purpose=f"fault.{name}", seconds=session.conf.endurance.fault_push_s)
            )
        except TransactionFailed as error:
            failure = error
    session.run.event("fault_over", name=name)
    if session.publisher is None:
        # The next one takes its imports while the servers are looked at.
        start_publisher(session)
    allowed = shot.deadline_s + session.conf.endurance.limit_s
    return fault_check(name, look(session, name, failure, shot.at, allowed))
