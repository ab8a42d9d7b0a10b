"""Lane L6: cycles under load, the trend of the memory, faults and recovery, and last the checkpoint that is to stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vst.config import FAULTS, NOT_BUILT
from vst.errors import VstError
from vst.lanes.asking import take_each
from vst.lanes.endurance.cycles import Arrival, Cycles
from vst.lanes.endurance.faulting import Faults, left_out, not_made, run_faults
from vst.lanes.endurance.memory import SOURCE
from vst.lanes.endurance.phases import distribution
from vst.lanes.endurance.recovery import recovery_check
from vst.lanes.endurance.traffic_check import clean_check
from vst.lanes.endurance.trend import trend_check
from vst.lanes.seats import arrived, each_check
from vst.lanes.servers import same_check
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, answers_check, completed_check, transact
from vst.oracle.reference import Reference
from vst.transfer.plan import Sent
from vst.verdict import Check, LaneVerdict, Outcome

FILE = "endurance.json"
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
    found = Found(Cycles(session, states))
    try:
        if found.cycles.learn():
            found.cycles.run()
        if whole(session, found.cycles):
            run_faults(session, states, found.faults)
        if whole(session, found.cycles) and all(one.good for one in found.faults.recoveries):
            _finally(session, found)
    except TransactionFailed as failure:
        found.failure = failure
    except VstError as error:
        found.broken = error
    finally:
        session.loads = []
    _write(session, found)
    return LaneVerdict("L6", tuple([*judge(session, found), same_check(session)]))


def whole(session: Session, cycles: Cycles) -> bool:
    """Whether every cycle was made and every content was right."""
    done = [one for one in cycles.arrivals if one.cycle]
    return len(done) == 2 * session.conf.endurance.cycles and all(one.good for one in cycles.arrivals)


def _finally(session: Session, found: Found) -> None:
    role, claim = ("checkpoint", "B") if session.conf.lane.final == "checkpoint" else ("model", "A")
    session.progress.say(f"leaving {claim} on the server")
    found.sent.append(transact(session, Push(role, purpose="final")))
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
        "phases": distribution([one.phases for one in arrivals if one.cycle]),
        "memory": {"source": SOURCE, "bytes": samples(arrivals)},
        "recoveries": [one.to_json() for one in found.faults.recoveries],
    }
    session.run.write(FILE, content)


def samples(arrivals: Sequence[Arrival]) -> list[int | None]:
    """The memory at the end of every cycle."""
    return [one.memory for one in arrivals if one.cycle and one.role == "model"]


def judge(session: Session, found: Found) -> list[Check]:
    """The checks of the lane from what was found; each says so when there was nothing to judge."""
    conf, cycles = session.conf, found.cycles
    checks = [
        completed_check([*cycles.sent, *found.sent], found.failure),
        answers_check(found.broken),
        cycles_check(cycles.arrivals, conf.endurance.cycles, session.floor),
        clean_check(cycles.arrivals, conf.endurance.cycles),
        memory_check(samples(cycles.arrivals), conf.endurance.memory_growth),
    ]
    checks += found.faults.checks + _missing(session, found)
    checks.append(recovery_check(found.faults.recoveries, _asked(session)))
    if len(session.seats) > 1:
        results = [dict(seat) for one in cycles.arrivals for seat in one.seats] + found.final
        wanted = (3 + 2 * conf.endurance.cycles + 1) * len(session.seats)
        checks.append(each_check(results, wanted, session.floor))
    checks.append(_final_check(session, found))
    return [*checks, *_not_climbed()]


def cycles_check(arrivals: Sequence[Arrival], cycles: int, floor: float | None) -> Check:
    """``cycles.all``: every change of every cycle ended at the content that was pushed; the first that did not is
    named.
    """
    expected = f"{cycles} cycles to B and back, each equal to its reference"
    done = [one for one in arrivals if one.cycle]
    observed = {"cycles": sum(one.role == "model" and one.good for one in done), "changes": len(done)}
    bad = next(((one, seat) for one in arrivals for seat in one.seats if not seat["equal"]), None)
    if bad is not None:
        one, seat = bad
        where = f"cycle {one.cycle}" if one.cycle else "before the first cycle"
        at = f"{where}, to {'B' if one.role == 'checkpoint' else 'A'}" + (f", {seat['seat']}" if seat["seat"] else "")
        reason = f"{at}: {seat['looks_like']}; first differing {seat['first']}"
        return Check("cycles.all", Outcome.FAIL, observed, expected, floor, reason, seat["record"])
    if len(done) < 2 * cycles:
        reason = f"only {len(done)} of {2 * cycles} changes could be judged: an earlier step did not hold"
        return Check("cycles.all", Outcome.INCONCLUSIVE, observed, expected, floor, reason, FILE)
    return Check("cycles.all", Outcome.PASS, observed, expected, floor, evidence=FILE)


def memory_check(found: Sequence[int | None], growth: float) -> Check:
    """``memory.trend``, or why there is none."""
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        reason = "the memory of a server that this run did not start cannot be seen"
        return Check("memory.trend", Outcome.INCONCLUSIVE, None, "a slope with an interval", growth, reason)
    return trend_check(known, growth, SOURCE)


def _asked(session: Session) -> int:
    return sum(left_out(session, name) is None for name in FAULTS)


def _missing(session: Session, found: Found) -> list[Check]:
    """The faults that were not reached, and those that are declared away all the same."""
    if found.faults.checks:
        return []
    reasons = {name: left_out(session, name) for name in FAULTS}
    return [
        Check(f"fault.{name}", Outcome.NOT_APPLICABLE, reason=reason)
        if (reason := reasons[name])
        else not_made(name, "a cycle before it did not hold")
        for name in FAULTS
    ]


def _final_check(session: Session, found: Found) -> Check:
    expected = f"ends at {session.conf.lane.final}"
    if not found.final:
        reason = "not reached: an earlier step did not hold"
        return Check("cycles.final", Outcome.INCONCLUSIVE, None, expected, session.floor, reason)
    bad = next((one for one in found.final if not one["equal"]), None)
    reason = f"{bad['seat']} {bad['looks_like']}".strip() if bad else ""
    outcome = Outcome.FAIL if bad else Outcome.PASS
    return Check("cycles.final", outcome, found.final, expected, session.floor, reason, "record-endurance-final.json")


def _not_climbed() -> list[Check]:
    """The rungs below this one that this version has not: the ladder did not climb them, and says so."""
    why = "this version has no lane {}: what it would have checked was not checked"
    return [
        Check(f"ladder.{rung}", Outcome.NOT_APPLICABLE, None, "climbed before L6", reason=why.format(rung))
        for rung in NOT_BUILT
    ]
