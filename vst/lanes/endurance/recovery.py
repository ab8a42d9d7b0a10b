"""The way back after a fault: a full push that verifies, or, where that cannot help, a restart of a server of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vst.errors import VstError
from vst.lanes.asking import take_each
from vst.lanes.drafts import push_with_draft
from vst.lanes.fleet import Replica
from vst.lanes.fleet_opening import restart
from vst.lanes.seats import arrived
from vst.lanes.servers import owned
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, restore
from vst.oracle.record import Record
from vst.verdict import Check, Outcome

EXPECTED = "after every fault the servers serve A again, as their answers show"


@dataclass(frozen=True)
class Recovered:
    """How the servers came back after a fault: ``push``, ``restart`` and then a push, or ``none`` with the reason."""

    fault: str
    way: str
    reason: str
    seats: tuple[Mapping[str, Any], ...] = ()

    @property
    def good(self) -> bool:
        return self.way != "none" and bool(self.seats) and all(one["equal"] for one in self.seats)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seats": [dict(one) for one in self.seats]}


def recover(session: Session, fault: str, states: Mapping[str, Record]) -> Recovered:
    """Bring every server back to A and compare; what cannot be done is the reason, not an error."""
    reason = "; ".join(_restart_needed(session))
    if reason and not owned(session):
        return Recovered(fault, "none", f"restart needed: {reason}")
    try:
        if not reason and (refused := _push(session)) is not None:
            reason = "; ".join(_restart_needed(session))
            if not reason or not owned(session):
                return Recovered(fault, "none", f"restart needed: {reason}" if reason else str(refused))
        if reason:
            _restart(session)
            if (refused := _push(session)) is not None:
                return Recovered(fault, "none", f"not even after a restart: {refused}")
        return _compared(session, fault, "restart" if reason else "push", reason, states)
    except VstError as error:
        return Recovered(fault, "none", str(error))


def _push(session: Session) -> TransactionFailed | None:
    try:
        push_with_draft(session, Push("model", purpose="recovery"), restore)
    except TransactionFailed as failure:
        return failure
    return None


def _compared(session: Session, fault: str, way: str, reason: str, states: Mapping[str, Record]) -> Recovered:
    name = f"recovered-{fault}"
    seats = arrived(session, take_each(session, "A", name), name, states["A"], states["B"])
    if all(one["equal"] for one in seats):
        session.need("fleet").each(lambda lifecycle: lifecycle.verify())
    return Recovered(fault, way, reason, tuple(seats))


def _needs(replica: Replica) -> str | None:
    """Why only a restart helps a server, None where a push may."""
    if replica.lifecycle.state == "dead":
        return "its process has ended"
    return replica.lifecycle.restart if replica.lifecycle.state == "tainted" else None


def _restart_needed(session: Session) -> list[str]:
    found = [(replica.server.title, _needs(replica)) for replica in session.need("fleet").replicas]
    return [f"{title}: {why}" if title else why for title, why in found if why]


def _restart(session: Session) -> None:
    for index, replica in enumerate(session.need("fleet").replicas):
        if _needs(replica):
            session.progress.say(f"restarting {replica.server.title or 'the server'} on A")
            restart(session, index)


def recovery_check(found: Sequence[Recovered], made: int) -> Check:
    """``recovery.full_push``: after each of the ``made`` faults the servers came back, and were compared."""
    observed = [one.to_json() for one in found]
    bad = next((one for one in found if not one.good), None)
    if bad is not None:
        seen = next((f"{one['looks_like']} ({one['record']})" for one in bad.seats if not one["equal"]), "")
        reason = f"after {bad.fault}: {bad.reason or seen}"
        return Check("recovery.full_push", Outcome.FAIL, observed, EXPECTED, reason=reason)
    if not made:
        why = "declared by endurance.faults: no fault was made, so nothing had to be recovered"
        return Check("recovery.full_push", Outcome.NOT_APPLICABLE, observed, EXPECTED, reason=why)
    if len(found) < made:
        why = f"{len(found)} of {made} recoveries were tried: an earlier step did not hold"
        return Check("recovery.full_push", Outcome.INCONCLUSIVE, observed, EXPECTED, reason=why)
    warnings = tuple(f"after {one.fault} a restart was needed: {one.reason}" for one in found if one.way == "restart")
    return Check("recovery.full_push", Outcome.PASS, observed, EXPECTED, warnings=warnings)
