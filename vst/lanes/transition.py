"""Lane L3: A → B → A, then a control for every tensor family, and last the checkpoint that is to stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vst.errors import VstError
from vst.lanes import controls
from vst.lanes.asking import take, take_each
from vst.lanes.cache import CacheProbe
from vst.lanes.drafts import COLD, Arrival, draft_role, drafting_check, push_draft
from vst.lanes.fleet import Replica, over_all
from vst.lanes.same_server import same_check
from vst.lanes.seats import arrived, seat_checks
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, answers_check, completed_check, transact
from vst.oracle.compare import difference
from vst.oracle.record import Record
from vst.oracle.reference import Reference, comparable_facts, differing
from vst.server.seats import seat_name
from vst.transfer.plan import Sent
from vst.verdict import Check, LaneVerdict, Outcome

FIRST, STALE = "model-1", "draft-stale"
"""States whose drafts are counted beside the cold B: the first A, and B while its draft was still A's."""


@dataclass
class Found:
    """What the lane has seen so far, one entry for each push that was judged."""

    sent: list[Sent] = field(default_factory=list)
    failure: TransactionFailed | None = None
    broken: VstError | None = None
    to_b: list[dict[str, Any]] = field(default_factory=list)
    back: list[dict[str, Any]] = field(default_factory=list)
    labels: list[dict[str, Any]] = field(default_factory=list)
    cold: list[dict[str, Any]] = field(default_factory=list)
    seats: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] | None = None
    drafts: list[Arrival] = field(default_factory=list)
    controls: list[Check] = field(default_factory=list)

    @property
    def good(self) -> bool:
        judged = [*self.to_b, *self.back, *([self.final] if self.final else []), *self.seats]
        return self.failure is None and self.broken is None and all(one["equal"] for one in judged)


def run_transition(session: Session, reference: Reference) -> LaneVerdict:
    """Judge the transition against the reference of B and the first record of A."""
    if reference.drafted is not None:
        session.drafted[COLD] = reference.drafted
    first = [comparable_check(session, reference)]
    if first[0].outcome is Outcome.PASS:
        first.append(distinct_check(session.records[0], reference.record, session.need("floor")))
    if any(check.outcome is not Outcome.PASS for check in first):
        return LaneVerdict("L3", tuple(first))
    found = Found()
    try:
        _cycles(session, reference.record, found)
        if found.good:
            found.controls = controls.run_controls(session, reference.record, found.sent)
        if found.good:
            _finally(session, reference.record, found)
    except TransactionFailed as failure:
        found.failure = failure
    except VstError as error:
        found.broken = error
    return LaneVerdict("L3", tuple([*first, *judge(session, found), same_check(session)]))


def comparable_check(session: Session, reference: Reference) -> Check:
    """``reference.comparable``: the cold server and those under test were started alike."""
    replicas = session.need("fleet").replicas
    return over_all([(one.server.title, _comparable(session, reference, one)) for one in replicas])


def _comparable(session: Session, reference: Reference, replica: Replica) -> Check:
    apart = differing(reference.facts, comparable_facts(replica.facts))
    if reference.record.probes != session.need("probes").digest:
        apart["probes"] = (reference.record.probes, session.need("probes").digest)
    expected = "the same flags, environment and versions"
    if apart:
        shown = ", ".join(f"{key}: {cold!r} / {warm!r}" for key, (cold, warm) in list(apart.items())[:10])
        reason = f"references not comparable, {len(apart)} key(s) differ (cold / under test): {shown}"
        if reference.source.endswith(".json"):
            reason += f"; the reference is {reference.source}: set oracle.reference_cache=false to take a new one"
        return Check("reference.comparable", Outcome.REFUSED, sorted(apart), expected, reason=reason)
    return Check("reference.comparable", Outcome.PASS, reference.source, expected)


def distinct_check(first_a: Record, cold_b: Record, floor: float) -> Check:
    """``reference.distinct``: the probes tell A from B; otherwise nothing that follows could be seen."""
    apart, expected = difference(first_a, cold_b, floor), "A and B differ"
    reason = ""
    if not cold_b.finite():
        reason = (
            "the cold server on B answers with what is no number: nothing can be compared with that; look at B, and at "
            "this vLLM with it, before any push"
        )
    elif apart.equal:
        reason = (
            "probes insensitive: A and B answer alike; use more or longer probes (oracle.probes, oracle.max_tokens)"
        )
    outcome = Outcome.INCONCLUSIVE if reason else Outcome.PASS
    return Check("reference.distinct", outcome, apart.to_json(), expected, floor, reason)


def _cycles(session: Session, cold_b: Record, found: Found) -> None:
    first_a = session.records[0]
    for cycle in range(1, session.conf.lane.cycles + 1):
        for role, claim, expected, previous, out in (
            ("checkpoint", "B", cold_b, first_a, found.to_b),
            ("model", "A", first_a, cold_b, found.back),
        ):
            session.progress.say(f"cycle {cycle} of {session.conf.lane.cycles}: to {claim}")
            out.append(_arrive(session, Push(role), claim, f"{role}-cycle-{cycle}", expected, previous, found))
            if not found.good:
                return


def _finally(session: Session, cold_b: Record, found: Found) -> None:
    role, claim = ("checkpoint", "B") if session.conf.lane.final == "checkpoint" else ("model", "A")
    expected, previous = (cold_b, session.records[0]) if claim == "B" else (session.records[0], cold_b)
    session.progress.say(f"leaving {claim} on the server")
    found.final = _arrive(session, Push(role, purpose="final"), claim, f"{role}-final", expected, previous, found)


def _arrive(
    session: Session, push: Push, claim: str, name: str, expected: Record, previous: Record, found: Found
) -> dict[str, Any]:
    """Push, then look: first at the caches, then at all probes, then at the labels. The result is the first seat's."""
    caches = [CacheProbe(session, seat) for seat in session.seats]
    for cache in caches:
        cache.seed()
    found.sent.append(transact(session, push))
    found.cold += [cache.ask_again() for cache in caches]
    _draft(session, push, found)
    results = arrived(session, take_each(session, claim, name), name, expected, previous)
    found.drafts += _drafted(session, claim, name)
    found.seats += results
    found.labels += _labels(session, results)
    if all(one["equal"] for one in results):
        session.need("fleet").each(lambda lifecycle: lifecycle.verify())
    return {key: value for key, value in results[0].items() if key != "seat"}


def _drafted(session: Session, claim: str, name: str) -> list[Arrival]:
    """What the draft of every seat did for the record ``name``, beside what a cold one, or the first, did."""
    expected = session.drafted.get(COLD if claim == "B" else FIRST)
    names = [seat_name(name, number) for number in range(len(session.seats))]
    return [Arrival(one, session.drafted.get(one), expected) for one in names]


def _labels(session: Session, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The label of every server beside whether all its seats have the content."""
    replicas = session.need("fleet").replicas
    each, found = len(results) // len(replicas), []
    for number, replica in enumerate(replicas):
        label = replica.server.control.get("/weight_info")
        got = label.get("weight_version") if isinstance(label, dict) else None
        content = all(one["equal"] for one in results[number * each : (number + 1) * each])
        found.append({"expected": session.label, "observed": got, "content": content})
    return found


def _draft(session: Session, push: Push, found: Found) -> None:
    """The draft after its model; before it, once, the record of a model whose draft was left behind."""
    if draft_role(session, push.role) is not None:
        if STALE not in session.drafted:
            take(session, session.need("seat"), "B with the draft of A", STALE)
        found.sent += push_draft(session, push)


def judge(session: Session, found: Found) -> list[Check]:
    """The checks of the lane from what was found; each says so when there was nothing to judge."""
    cycles, floor = session.conf.lane.cycles, session.floor
    checks = [completed_check(found.sent, found.failure), answers_check(found.broken)]
    checks.append(arrival_check("transition.to_b", found.to_b, cycles, "equals the cold reference of B", floor))
    checks.append(arrival_check("transition.back", found.back, cycles, "equals the first record of A", floor))
    checks += seat_checks(session, found.seats, 2 * cycles + 1)
    checks.append(label_check(found.labels))
    checks.append(
        cold_check(found.cold, session.conf.server.capabilities.cached_tokens, session.conf.server.capabilities.reason)
    )
    repeats = [session.drafted.get(f"model-{number}") for number in range(1, session.conf.oracle.repeats + 1)]
    checks += drafting_check(
        session, found.drafts, (2 * cycles + 1) * len(session.seats), repeats, session.drafted.get(STALE)
    )
    checks += found.controls or controls.not_run(session, found.good)
    final = [found.final] if found.final else []
    checks.append(arrival_check("transition.final", final, 1, f"ends at {session.conf.lane.final}", floor))
    return checks


def arrival_check(id: str, results: list[dict[str, Any]], wanted: int, expected: str, floor: float | None) -> Check:
    """One check over the same arrival in all cycles; the first bad one is named with what the server looks like."""
    for number, result in enumerate(results, 1):
        if not result["equal"]:
            reason = f"cycle {number}: {result['looks_like']}{_where(result['first'])}"
            return Check(id, Outcome.FAIL, results, expected, floor, reason, result["record"])
    if len(results) < wanted:
        reason = f"only {len(results)} of {wanted} could be judged: an earlier step did not hold"
        return Check(id, Outcome.INCONCLUSIVE, results, expected, floor, reason)
    return Check(id, Outcome.PASS, results, expected, floor)


def _where(first: dict[str, Any] | None) -> str:
    if first is None:
        return ""
    place = f"first differing probe {first['probe']}, {first['where']} position {first['position']}"
    return f"; {place}: observed {first['observed']}, expected {first['expected']}"


def label_check(labels: list[dict[str, Any]]) -> Check:
    """``transition.label``: the weight version moved with the content; a label without the content fails."""
    expected = "the label that was set with the finish, and the content it stands for"
    if not labels:
        reason = "no transition was finished, so there is no label to judge"
        return Check("transition.label", Outcome.INCONCLUSIVE, labels, expected, reason=reason)
    for one in labels:
        if one["observed"] == one["expected"] and not one["content"]:
            reason = f"label without content: the server says {one['observed']} and does not answer like it"
            return Check("transition.label", Outcome.FAIL, labels, expected, reason=reason)
    wrong = [one for one in labels if one["observed"] != one["expected"]]
    warnings = tuple(
        f"content without label: /weight_info says {one['observed']}, set was {one['expected']}" for one in wrong
    )
    return Check("transition.label", Outcome.PASS, labels, expected, warnings=warnings)


def cold_check(found: list[dict[str, Any]], declared: bool, reason: str | None) -> Check:
    """``cache.cold``: the first answer after each change used no cached token, seen by a detector that works."""
    expected = "no cached token in the first answer after the change"
    warm = next((one for one in found if one["after"]), None)
    if warm is not None:
        why = f"{warm['after']} cached tokens of the old weights were used in the first answer after the change"
        return Check("cache.cold", Outcome.FAIL, found, expected, reason=why)
    if not declared:
        why = f"declared by server.capabilities.cached_tokens=false: {reason or 'no reason given'}"
        return Check("cache.cold", Outcome.NOT_APPLICABLE, found, expected, reason=why)
    if found and all(one["prefix_caching"] is False for one in found):
        return Check("cache.cold", Outcome.PASS, found, expected, warnings=("prefix caching is off on this server",))
    if not found:
        why = "the lane ended before an answer after a change could be looked at"
        return Check("cache.cold", Outcome.INCONCLUSIVE, found, expected, reason=why)
    if any(one["before"] is None or one["after"] is None for one in found):
        why = "the server does not report cached tokens: start it with --enable-prompt-tokens-details"
        return Check("cache.cold", Outcome.INCONCLUSIVE, found, expected, reason=why)
    if any(one["before"] == 0 for one in found):
        why = "a repeated prompt showed no cached token before the change, so a warm cache could not have been seen"
        return Check("cache.cold", Outcome.INCONCLUSIVE, found, expected, reason=why)
    return Check("cache.cold", Outcome.PASS, found, expected)
