"""Lane L5: the questions of the eval group before and after, on A, on A over A, and on B, against a cold B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vst.errors import VstError
from vst.evals.compare import Comparison, compare
from vst.evals.defaults import server_defaults
from vst.evals.judging import Floor, Rules
from vst.evals.plan import Plan
from vst.evals.store import Evaluation
from vst.lanes import eval_checks
from vst.lanes.asking import take_each
from vst.lanes.drafts import Arrival, drafting_check, push_with_draft
from vst.lanes.evaluation import rules, server_identity, take_evaluation
from vst.lanes.fleet import Fleet, over_all
from vst.lanes.same_server import same_check
from vst.lanes.seats import EACH, arrived
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, answers_check, completed_check
from vst.server.seats import seat_name, seat_titles
from vst.server.speculation import Drafted
from vst.transfer.plan import Sent
from vst.verdict import Check, LaneVerdict, Outcome

STATES = ("pre", "repeat", "identity", "post")
"""The evaluations that the lane takes, in order: A, A again, A pushed over A, B."""

COMPARED = {
    "repeat": ("pre", "repeat"),
    "eval.records": ("pre", "identity"),
    "eval.reference": ("reference", "post"),
    "shift": ("pre", "post"),
    "eval.distinct": ("pre", "reference"),
}
"""Which two evaluations each comparison is of: what is expected, and what is judged."""


@dataclass
class Found:
    """What the lane has seen so far."""

    taken: dict[str, Evaluation] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    failure: TransactionFailed | None = None
    broken: VstError | None = None
    finals: list[dict[str, Any]] = field(default_factory=list)


def run_quality(session: Session, plan: Plan) -> LaneVerdict:
    """Evaluate A twice, push A over A, evaluate, push B, evaluate; judge against the cold evaluation of B."""
    found = Found()
    if session.cold_evaluation is not None:
        found.taken["reference"] = session.cold_evaluation
    try:
        _states(session, plan, found)
    except TransactionFailed as failure:
        found.failure = failure
    except VstError as error:
        found.broken = error
    return LaneVerdict("L5", tuple([*judge(session, plan, found), same_check(session)]))


def _states(session: Session, plan: Plan, found: Found) -> None:
    if session.need("lifecycle").holds != "model":
        _push(session, "model", "quality.from_a", found)
    else:
        _empty_caches(session)
    _evaluate(session, plan, "model", "A", "pre", found)
    _empty_caches(session)
    _evaluate(session, plan, "model", "A", "repeat", found)
    _push(session, "model", "quality.identity", found)
    _evaluate(session, plan, "model", "A", "identity", found)
    _push(session, "checkpoint", "quality.to_b", found)
    for number in range(len(session.seats)):
        _evaluate(session, plan, "checkpoint", "B", "post", found, number)
    if session.conf.lane.final == "model":
        _back(session, found)
    elif _all_equal(session, found.taken):
        session.need("fleet").each(lambda lifecycle: lifecycle.verify())


def _all_equal(session: Session, taken: Mapping[str, Evaluation]) -> bool:
    pairs = seat_pairs(taken, len(session.seats), rules(session).extraction)
    return all(pair is not None and not pair.differing for pair in pairs.values())


def _push(session: Session, role: str, purpose: str, found: Found) -> None:
    session.progress.say(f"pushing {'A' if role == 'model' else 'B'}")
    found.sent += push_with_draft(session, Push(role, purpose=purpose))


def _empty_caches(session: Session) -> None:
    """What was asked before must not help: every evaluation begins with empty caches, as on a cold server."""
    fleet: Fleet = session.need("fleet")
    fleet.each(lambda lifecycle: lifecycle.pause(session.conf.lane.pause_mode))
    fleet.each(lambda lifecycle: lifecycle.reset_caches())
    fleet.each(lambda lifecycle: lifecycle.resume())


def _evaluate(session: Session, plan: Plan, role: str, claim: str, name: str, found: Found, seat: int = 0) -> None:
    fleet: Fleet = session.need("fleet")
    replica = fleet.replicas[seat * len(fleet.replicas) // len(session.seats)]
    identity, name = server_identity(session, role, replica.facts), seat_name(name, seat)
    found.taken[name] = take_evaluation(session, session.seats[seat], plan, claim, name, identity)


def _back(session: Session, found: Found) -> None:
    """Leave A, as ``lane.final`` says, and look whether it is there."""
    _push(session, "model", "quality.final", found)
    first, name = session.records[0], "quality-final"
    found.finals = arrived(session, take_each(session, "A", name), name, first, first)
    if all(one["equal"] for one in found.finals):
        session.need("fleet").each(lambda lifecycle: lifecycle.verify())


def judge(session: Session, plan: Plan, found: Found) -> list[Check]:
    """The checks of the lane from what was found."""
    titles, chosen = seat_titles(vars(session.conf.server)), rules(session)
    pairs = comparisons(found.taken, chosen.extraction)
    floor = eval_checks.floor_of(pairs.get("repeat"))
    seats = seat_pairs(found.taken, len(titles), chosen.extraction)
    for name, pair in (*pairs.items(), *list(seats.items())[1:]):
        if pair is not None:
            session.run.write(comparison_file(name), pair.to_json())
    defaults = server_defaults(session.manifests["model"].path, session.need("facts").config)
    shift = pairs.get("shift")
    gates = {name: pair for name, pair in pairs.items() if name in ("eval.records", "eval.reference")}
    return [
        completed_check(found.sent, found.failure),
        answers_check(found.broken),
        eval_checks.complete_check(found.taken, wanted_of(len(titles))),
        eval_checks.pinned_check(found.taken, plan.to_json(), defaults),
        comparable_check(found.taken),
        eval_checks.distinct_check(pairs.get("eval.distinct")),
        *(
            eval_checks.records_check(name, pairs.get(name), floor, chosen, comparison_file(name))
            for name in ("eval.records", "eval.reference")
        ),
        eval_checks.paired_check(gates, shift, floor, chosen),
        *_drafts(session, found.taken),
        *each_seat(titles, seats, floor, chosen),
        *([final_check(found.finals, session.floor)] if session.conf.lane.final == "model" else []),
    ]


def comparisons(taken: dict[str, Evaluation], extraction: str) -> dict[str, Comparison]:
    """Every comparison whose two evaluations were taken to their end."""
    found = {name: _pair(taken, left, right, extraction) for name, (left, right) in COMPARED.items()}
    return {name: pair for name, pair in found.items() if pair is not None}


def comparison_file(name: str) -> str:
    return f"comparison-{name.removeprefix('eval.')}.json"


def comparable_check(taken: dict[str, Evaluation]) -> Check:
    """``eval.comparable``: the cold evaluation is of a server that was started like the one under test."""
    expected = "the same flags, environment and versions"
    if "pre" not in taken or "reference" not in taken:
        why = "there is no evaluation of a cold B, or none of the server under test"
        return Check("eval.comparable", Outcome.INCONCLUSIVE, None, expected, reason=why)
    problem = eval_checks.same_server_problem(taken["pre"], taken["reference"])
    observed = {"compared": len(taken["pre"].header["server"]["facts"])}
    if problem is not None:
        return Check("eval.comparable", Outcome.REFUSED, observed, expected, reason=problem)
    return Check("eval.comparable", Outcome.PASS, observed, expected)


def wanted_of(seats: int) -> tuple[str, ...]:
    """The evaluations of a whole lane by their names: B is evaluated on every seat."""
    return (*STATES, *(seat_name("post", seat) for seat in range(1, seats)), "reference")


def seat_pairs(taken: Mapping[str, Evaluation], seats: int, extraction: str) -> dict[str, Comparison | None]:
    """The cold evaluation of B beside that of every seat, by the name of the comparison; None where one is missing."""
    names = [(seat_name("reference", seat), seat_name("post", seat)) for seat in range(seats)]
    return {name: _pair(taken, "reference", post, extraction) for name, post in names}


def each_seat(
    titles: Sequence[str], pairs: Mapping[str, Comparison | None], floor: Floor | None, chosen: Rules
) -> list[Check]:
    """``replicas.each``: every seat answered the questions as the cold B did, where there is more than one."""
    if len(titles) == 1:
        return []
    checks = [
        eval_checks.records_check(EACH, pair, floor, chosen, comparison_file(name)) for name, pair in pairs.items()
    ]
    return [over_all(list(zip(titles, checks, strict=True)))]


def final_check(found: list[dict[str, Any]], floor: float | None) -> Check:
    """``eval.final``: every seat answers like A again, where ``lane.final`` asks for it."""
    expected = "equals the first record of A"
    if not found:
        why = "A was not pushed back: an earlier step did not hold"
        return Check("eval.final", Outcome.INCONCLUSIVE, None, expected, floor, why)
    for one in found:
        if not one["equal"]:
            reason = f"{one['seat']} first at {one['first']}".strip()
            return Check("eval.final", Outcome.FAIL, found, expected, floor, reason, one["record"])
    return Check("eval.final", Outcome.PASS, found, expected, floor)


def _drafts(session: Session, taken: dict[str, Evaluation]) -> list[Check]:
    counts = {name: Drafted.from_json(one.drafted) if one.drafted else None for name, one in taken.items()}
    arrivals = [
        Arrival(f"evaluation-{state}", counts[state], counts.get(expected))
        for state, expected in (("identity", "pre"), ("post", "reference"))
        if state in counts
    ]
    return drafting_check(session, arrivals, 2, [counts.get("pre"), counts.get("repeat")], None)


def _pair(taken: Mapping[str, Evaluation], left: str, right: str, extraction: str) -> Comparison | None:
    """Two evaluations beside each other; None where one was not taken to its end."""
    whole = [taken[name] for name in (left, right) if name in taken]
    if len(whole) < 2 or any(not one.complete or one.missing for one in whole):
        return None
    return compare(whole[0], whole[1], extraction)
