"""Lane L6: cycles under load, the trend of the memory, faults and recovery, and last the checkpoint that is to stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vst.config import FAULTS
from vst.errors import VstError
from vst.lanes.asking import take_each
from vst.lanes.drafts import push_with_draft
from vst.lanes.endurance.checks import FILE, LEARNING, clean_check, cycles_check, final_check, memory_check, samples
from vst.lanes.endurance.cycles import Cycles
from vst.lanes.endurance.faulting import Faults, left_out, not_made, run_faults
from vst.lanes.endurance.memory import memory_of
from vst.lanes.endurance.phases import distribution
from vst.lanes.endurance.recovery import recovery_check
from vst.lanes.endurance.trend import limit
from vst.lanes.faults.aftermath import EXPECTED
from vst.lanes.same_server import same_check
from vst.lanes.seats import arrived, seat_checks
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, answers_check, completed_check
from vst.oracle.reference import Reference
from vst.transfer.plan import Sent
from vst.verdict import Check, LaneVerdict, Outcome

FORMAT = "vst-endurance/1"


@dataclass
class Found:
    """What the lane has seen so far."""

    cycles: Cycles
    faults: Faults = field(default_factory=Faults)
    failure: TransactionFailed | None = None
    broken: VstError | None = None
    final: list[dict[str, Any]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)


def run_endurance(session: Session, reference: Reference) -> LaneVerdict:
    """Judge all cycles against the reference of B and the first record of A, then the faults."""
    states = {"A": session.records[0], "B": reference.record}
    found = Found(Cycles(session, states, memory_of(session)))
    try:
        _climb(session, found)
    except TransactionFailed as failure:
        found.failure = failure
    except VstError as error:
        found.broken = error
    session.loads = []
    _write(session, found)
    return LaneVerdict("L6", tuple([*judge(session, found), same_check(session)]))


def _climb(session: Session, found: Found) -> None:
    if found.cycles.learn():
        found.cycles.run()
    if not whole(session, found.cycles):
        return
    run_faults(session, found.cycles.states, found.faults)
    if all(one.good for one in found.faults.recoveries):
        _finally(session, found)


def whole(session: Session, cycles: Cycles) -> bool:
    """Whether every cycle was made and every content was right."""
    done = [one for one in cycles.arrivals if one.cycle]
    return len(done) == 2 * session.conf.endurance.cycles and all(one.good for one in cycles.arrivals)


def _finally(session: Session, found: Found) -> None:
    role, claim = ("checkpoint", "B") if session.conf.lane.final == "checkpoint" else ("model", "A")
    session.progress.say(f"leaving {claim} on the server")
    found.sent += push_with_draft(session, Push(role, purpose="final"))
    name, states = "endurance-final", found.cycles.states
    other = states["A" if claim == "B" else "B"]
    found.final = arrived(session, take_each(session, claim, name), name, states[claim], other)
    if all(one["equal"] for one in found.final):
        session.need("fleet").each(lambda lifecycle: lifecycle.verify())


def _write(session: Session, found: Found) -> None:
    arrivals = found.cycles.arrivals
    content = {
        "format": FORMAT,
        "arrivals": [one.to_json() for one in arrivals],
        "phases": distribution([one.phases or {} for one in arrivals if one.cycle]),
        "memory": {"source": found.cycles.memory.name, "allowed": allowed_growth(session), "bytes": samples(arrivals)},
        "recoveries": [one.to_json() for one in found.faults.recoveries],
    }
    session.run.write(FILE, content)


def judge(session: Session, found: Found) -> list[Check]:
    """The checks of the lane from what was found; each says so when there was nothing to judge."""
    conf, arrivals = session.conf, found.cycles.arrivals
    results = [dict(seat) for one in arrivals for seat in one.seats] + found.final
    return [
        completed_check([*found.cycles.sent, *found.sent], found.failure),
        answers_check(found.broken),
        cycles_check(arrivals, conf.endurance.cycles, session.floor),
        clean_check(arrivals, conf.endurance.cycles),
        memory_check(samples(arrivals), allowed_growth(session), found.cycles.memory.name),
        *(found.faults.checks or _not_reached(session)),
        recovery_check(found.faults.recoveries, asked(session)),
        *seat_checks(session, results, len(LEARNING) + 2 * conf.endurance.cycles + 1),
        final_check(found.final, conf.lane.final, session.floor),
    ]


def allowed_growth(session: Session) -> int:
    """Bytes a cycle by which the memory of all servers may grow."""
    conf, weights = session.conf.endurance, session.manifests["checkpoint"].total_bytes
    return limit(weights, conf.memory_share, conf.memory_least_bytes) * len(session.servers)


def asked(session: Session) -> int:
    """How many faults are to be made."""
    return sum(left_out(session, name) is None for name in FAULTS)


def _not_reached(session: Session) -> list[Check]:
    """What stands for the faults when none was made: declared away, or not reached."""
    return [
        Check(f"fault.{name}", Outcome.NOT_APPLICABLE, None, EXPECTED, reason=reason)
        if (reason := left_out(session, name))
        else not_made(name, "a cycle before it did not hold")
        for name in FAULTS
    ]
