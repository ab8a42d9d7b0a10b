"""The checks on sleeps, wakes and chains, judged from what the steps showed. Pure functions over stored data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vst.server.observe import Observation, mismatches
from vst.server.states import LOOKS, Situation
from vst.verdict import Check, Outcome

STAGES: Mapping[Situation, tuple[str, ...]] = {
    Situation.ASLEEP_1: (),
    Situation.ASLEEP_1_CACHE: (Situation.AWAKE_1_CACHE.value,),
    Situation.ASLEEP_1_WEIGHTS: (Situation.AWAKE_1_WEIGHTS.value,),
    Situation.ASLEEP_2: (),
    Situation.ASLEEP_2_LOST: (Situation.AWAKE_2_LOST.value,),
}
"""The levels and tags that must be seen, each with what it is on a version that does not hold its work."""

IDEMPOTENT = "chain-idempotent.json"
Chain = Mapping[str, Any]


def state_check(chains: Mapping[str, Chain], knocks: Mapping[str, Mapping[str, Any]]) -> Check:
    """``sleep.state``: at each level and tag the flags and the gauge fit, and the scheduler let no request through."""
    expected = "flags and gauge as the table of states says, no request answered, at every level and tag"
    seen: dict[str, dict[str, Any]] = {}
    for name, step in ((name, step) for name, chain in chains.items() for step in chain["steps"]):
        situation = Situation(step["after"])
        if not LOOKS[situation].asleep:
            continue
        seen[situation.value] = dict(step["observed"])
        if problems := mismatches(situation, _observation(step["observed"])):
            reason = f"after {step['step']}: {'; '.join(problems)}"
            return Check("sleep.state", Outcome.FAIL, seen, expected, None, reason, f"chain-{name}.json")
    for name, one in knocks.items():
        if name.startswith("asleep") and one["policy"] == "answered":
            reason = f"a server that says that it sleeps answered a request ({name}: {one['text']})"
            return Check("sleep.state", Outcome.FAIL, seen, expected, None, reason, f"load-knock-{name}.jsonl")
    missing = [stage.value for stage, running in STAGES.items() if not {stage.value, *running} & set(seen)]
    if missing:
        reason = f"not reached: {', '.join(missing)}"
        return Check("sleep.state", Outcome.INCONCLUSIVE, seen, expected, reason=reason)
    return Check("sleep.state", Outcome.PASS, seen, expected)


def _observation(data: Mapping[str, Any]) -> Observation:
    return Observation(data["paused"], data["sleeping"], tuple(int(level) for level in data["levels"]))


def orders_check(answers: Mapping[str, Mapping[str, Any]], wanted: Sequence[str], floor: float | None) -> Check:
    """``wake.orders``: after each wake order the server answers as the reference of what it held."""
    expected = f"equal to the reference after {', '.join(wanted)}"
    for name, found in answers.items():
        if not found["equal"]:
            reason = f"woken {name}: {found['looks_like']}, first {found['first']}"
            return Check("wake.orders", Outcome.FAIL, dict(answers), expected, floor, reason, found["record"])
    if missing := [name for name in wanted if name not in answers]:
        reason = f"not reached: {', '.join(missing)}"
        return Check("wake.orders", Outcome.INCONCLUSIVE, dict(answers), expected, floor, reason)
    return Check("wake.orders", Outcome.PASS, dict(answers), expected, floor)


def refusals_check(id: str, refusals: Sequence[Mapping[str, Any]], wanted: int, expected: str) -> Check:
    """A check on steps that were tried where they are not legal: each refused, and nothing sent."""
    observed = [dict(one) for one in refusals]
    for one in refusals:
        if one["sent"]:
            reason = f"{one['step']} was refused while the server was {one['situation']}, and {one['sent']} calls left"
            return Check(id, Outcome.FAIL, observed, expected, reason=reason)
    if len(refusals) < wanted:
        reason = f"only {len(refusals)} of {wanted} could be tried: an earlier step did not hold"
        return Check(id, Outcome.INCONCLUSIVE, observed, expected, reason=reason)
    return Check(id, Outcome.PASS, observed, expected)


def order_check(chain: Chain, answer: Mapping[str, Any], load: Check, floor: float | None) -> Check:
    """``lifecycle.order``: the whole chain under load ended at the reference, and every answer is one of A or of B."""
    expected = "every step observed, success: true from each reset, the reference at the end, only answers of A or B"
    observed = {"steps": [f"{one['step']}: {one['after']}" for one in chain["steps"]], "answer": dict(answer),
                "load": load.observed}  # fmt: skip
    if not answer["equal"]:
        reason = f"after the chain: {answer['looks_like']}, first {answer['first']}"
        return Check("lifecycle.order", Outcome.FAIL, observed, expected, floor, reason, answer["record"])
    evidence = load.evidence if load.outcome is not Outcome.PASS else "chain-order.json"
    return Check("lifecycle.order", load.outcome, observed, expected, floor, load.reason, evidence)


def idempotent_check(chain: Chain, wanted: Sequence[str], answer: Mapping[str, Any], floor: float | None) -> Check:
    """``lifecycle.idempotent``: a move that is repeated leaves the server as it was, and its answers too."""
    steps, expected = chain["steps"], f"the same after a second {', '.join(wanted)}"
    pairs = [(one, two) for one, two in zip(steps, steps[1:], strict=False) if one["step"] == two["step"]]
    observed = {"repeated": [one["step"] for one, _ in pairs], "answer": dict(answer)}
    for one, two in pairs:
        if (one["after"], one["observed"]) != (two["after"], two["observed"]):
            states = f"{one['after']}, {one['observed']} to {two['after']}, {two['observed']}"
            reason = f"a second {one['step']} changed the server from {states}"
            return Check("lifecycle.idempotent", Outcome.FAIL, observed, expected, floor, reason, IDEMPOTENT)
    if not answer["equal"]:
        reason = f"after the repeated moves: {answer['looks_like']}, first {answer['first']}"
        return Check("lifecycle.idempotent", Outcome.FAIL, observed, expected, floor, reason, answer["record"])
    if missing := [move for move in wanted if move not in observed["repeated"]]:
        reason = f"not repeated: {', '.join(missing)}"
        return Check("lifecycle.idempotent", Outcome.INCONCLUSIVE, observed, expected, floor, reason)
    return Check("lifecycle.idempotent", Outcome.PASS, observed, expected, floor, evidence=IDEMPOTENT)
