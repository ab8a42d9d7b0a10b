"""Lane L5: the questions of the eval group before and after, on A, on A over A, and on B, against a cold B."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vst.errors import VstError
from vst.evals.compare import Comparison, compare
from vst.evals.defaults import server_defaults
from vst.evals.plan import Plan
from vst.evals.store import Evaluation
from vst.lanes import eval_checks
from vst.lanes.asking import take
from vst.lanes.drafts import Arrival, drafting_check, push_with_draft
from vst.lanes.evaluation import rules, server_identity, take_evaluation
from vst.lanes.servers import same_check
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, answers_check, completed_check
from vst.oracle.compare import difference
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
    final: dict[str, Any] | None = None


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
    _evaluate(session, plan, "checkpoint", "B", "post", found)
    if session.conf.lane.final == "model":
        _back(session, found)
    elif "reference" in found.taken and not _pair(found.taken, "eval.reference").differing:
        session.need("lifecycle").verify()


def _push(session: Session, role: str, purpose: str, found: Found) -> None:
    session.progress.say(f"pushing {'A' if role == 'model' else 'B'}")
    found.sent += push_with_draft(session, Push(role, purpose=purpose))


def _empty_caches(session: Session) -> None:
    """What was asked before must not help: every evaluation begins with empty caches, as on a cold server."""
    lifecycle = session.need("lifecycle")
    lifecycle.pause(session.conf.lane.pause_mode)
    lifecycle.reset_caches()
    lifecycle.resume()


def _evaluate(session: Session, plan: Plan, role: str, claim: str, name: str, found: Found) -> None:
    identity = server_identity(session, role, session.need("facts"))
    found.taken[name] = take_evaluation(session, session.need("server"), plan, claim, name, identity)


def _back(session: Session, found: Found) -> None:
    """Leave A, as ``lane.final`` says, and look whether it is there."""
    _push(session, "model", "quality.final", found)
    record = take(session, session.need("server"), "A", "quality-final")
    apart = difference(record, session.records[0], session.need("floor"))
    found.final = {**apart.to_json(), "record": "record-quality-final.json"}
    if apart.equal:
        session.need("lifecycle").verify()


def judge(session: Session, plan: Plan, found: Found) -> list[Check]:
    """The checks of the lane from what was found."""
    chosen, wanted = rules(session), (*STATES, "reference")
    pairs = comparisons(found.taken, chosen.extraction)
    floor = eval_checks.floor_of(pairs.get("repeat"))
    for name, pair in pairs.items():
        session.run.write(comparison_file(name), pair.to_json())
    defaults = server_defaults(session.manifests["model"].path, session.need("facts").config)
    shift = pairs.get("shift")
    gates = {name: pair for name, pair in pairs.items() if name in ("eval.records", "eval.reference")}
    return [
        completed_check(found.sent, found.failure),
        answers_check(found.broken),
        eval_checks.complete_check(found.taken, wanted),
        eval_checks.pinned_check(found.taken, plan.to_json(), defaults),
        comparable_check(found.taken),
        eval_checks.distinct_check(pairs.get("eval.distinct")),
        *(
            eval_checks.records_check(name, pairs.get(name), floor, chosen, comparison_file(name))
            for name in ("eval.records", "eval.reference")
        ),
        eval_checks.paired_check(gates, shift, floor, chosen),
        *_drafts(session, found.taken),
        *([final_check(found.final, session.floor)] if session.conf.lane.final == "model" else []),
    ]


def comparisons(taken: dict[str, Evaluation], extraction: str) -> dict[str, Comparison]:
    """Every comparison whose two evaluations were taken to their end."""
    whole = {name: one for name, one in taken.items() if one.complete and not one.missing}
    return {
        name: compare(whole[left], whole[right], extraction)
        for name, (left, right) in COMPARED.items()
        if left in whole and right in whole
    }


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


def final_check(found: dict[str, Any] | None, floor: float | None) -> Check:
    """``eval.final``: the server answers like A again, where ``lane.final`` asks for it."""
    expected = "equals the first record of A"
    if found is None:
        why = "A was not pushed back: an earlier step did not hold"
        return Check("eval.final", Outcome.INCONCLUSIVE, None, expected, floor, why)
    if not found["equal"]:
        return Check("eval.final", Outcome.FAIL, found, expected, floor, f"first at {found['first']}", found["record"])
    return Check("eval.final", Outcome.PASS, found, expected, floor)


def _drafts(session: Session, taken: dict[str, Evaluation]) -> list[Check]:
    counts = {name: Drafted.from_json(one.drafted) if one.drafted else None for name, one in taken.items()}
    arrivals = [
        Arrival(f"evaluation-{state}", counts[state], counts.get(expected))
        for state, expected in (("identity", "pre"), ("post", "reference"))
        if state in counts
    ]
    return drafting_check(session, arrivals, 2, [counts.get("pre"), counts.get("repeat")], None)


def _pair(taken: dict[str, Evaluation], name: str) -> Comparison:
    left, right = COMPARED[name]
    return Comparison(taken[left], taken[right], "flexible")
