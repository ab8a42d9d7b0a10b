"""The checks on evaluations. Pure functions over their files, so that a stored run can be judged again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vst.errors import VerificationError
from vst.evals.compare import Comparison
from vst.evals.judging import Floor, Rules, judge_pairs, judge_records, measure_floor, statistics
from vst.evals.plan import PINNED, pinned_digest
from vst.evals.store import Evaluation
from vst.oracle.reference import differing
from vst.server.facts import UNTOUCHED
from vst.verdict import Check, Outcome

Evaluations = Mapping[str, Evaluation]
"""The evaluations of a lane by the name in their files."""

SHOWN = 20


def complete_check(taken: Evaluations, wanted: Sequence[str]) -> Check:
    """``eval.complete``: every question of every evaluation was answered; a failed one is never left out."""
    observed = {
        name: {
            "asked": found.plan["count"],
            "answered": len(found.records) - len(found.failed),
            "failed": [record.index for record in found.failed],
            "missing": found.missing,
            "tried_again": sum(len(r.call.get("failed_attempts", ())) for r in found.records if r.answered),
        }
        for name, found in taken.items()
    }
    expected = "an answer to every question"
    tried = {name: one["tried_again"] for name, one in observed.items() if one["tried_again"]}
    warnings = tuple(f"evaluation-{name}: {count} attempts failed and were repeated" for name, count in tried.items())
    for name, found in taken.items():
        if found.failed or found.missing:
            first = found.failed[0] if found.failed else None
            told = f", first question {first.index}: {first.error}" if first else ""
            counts = f"{len(found.failed)} failed, {found.missing} missing of {found.plan['count']}"
            reason = f"evaluation-{name}: {counts}{told}"
            return Check("eval.complete", Outcome.FAIL, observed, expected, 0, reason, _file(name), warnings)
    if not_taken := [name for name in wanted if name not in taken]:
        reason = f"not taken: {', '.join(not_taken)}; an earlier step did not hold"
        return Check("eval.complete", Outcome.INCONCLUSIVE, observed, expected, 0, reason, warnings=warnings)
    return Check("eval.complete", Outcome.PASS, observed, expected, 0, warnings=warnings)


def pinned_check(taken: Evaluations, plan: Mapping[str, Any], defaults: Mapping[str, Any]) -> Check:
    """``eval.pinned``: all evaluations asked the same, in the same tokens, and no default of a server had a say.

    ``defaults`` are the generation defaults that the server has of its own.
    """
    digests = {key: plan[key] for key in PINNED if key != "sampling"}
    firsts = {one.prompt_tokens for found in taken.values() for one in found.records[:1] if one.prompt_tokens}
    observed = {
        **digests,
        "plan": pinned_digest(plan),
        "source": dict(plan["source"]),
        "sampling": dict(plan["sampling"]),
        "chat_template": defaults.get("chat_template"),
        "server_defaults": dict(defaults.get("sampling") or {}),
        "first_prompt_tokens": sorted(firsts),
    }
    expected = "one plan, one rendering of the prompts, every sampling field sent"
    warnings = _default_warnings(plan, defaults)
    apart = [name for name, found in taken.items() if pinned_digest(found.plan) != pinned_digest(plan)]
    if apart:
        reason = f"evaluation-{apart[0]} asked something else: its plan is {pinned_digest(taken[apart[0]].plan)}"
        return Check("eval.pinned", Outcome.FAIL, observed, expected, reason=reason, warnings=warnings)
    moved = _other_tokens(taken)
    if moved:
        return Check("eval.pinned", Outcome.FAIL, observed, expected, reason=moved, warnings=warnings)
    return Check("eval.pinned", Outcome.PASS, observed, expected, warnings=warnings)


def _default_warnings(plan: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[str, ...]:
    sent = plan["sampling"]
    return tuple(
        f"the server's default {key} is {value!r}; sent was {sent.get(key)!r}"
        for key, value in (defaults.get("sampling") or {}).items()
        if key in sent and sent[key] != value
    )


def _other_tokens(taken: Evaluations) -> str | None:
    """Where two evaluations' prompts became different tokens: another tokenizer or chat template."""
    seen: dict[int, tuple[str, str]] = {}
    for name, found in taken.items():
        for record in found.records:
            if record.prompt_tokens is None:
                continue
            before = seen.setdefault(record.index, (record.prompt_tokens, name))
            if before[0] != record.prompt_tokens:
                places = f"evaluation-{name} than in evaluation-{before[1]}"
                return f"question {record.index} became other tokens in {places}: another tokenizer or chat template"
    return None


def records_check(name: str, found: Comparison | None, floor: Floor | None, rules: Rules, evidence: str) -> Check:
    """``eval.records`` or ``eval.reference``: ``found.right`` is ``found.left`` again."""
    expected = "every record equal" if floor is not None and not floor.texts else "equal within the noise of a repeat"
    if found is None or floor is None:
        why = "the evaluations that it compares were not both taken: an earlier step did not hold"
        return Check(name, Outcome.INCONCLUSIVE, None, expected, reason=why)
    outcome, reason = judge_records(found, floor, rules)
    indexes = [pair.left.index for pair in found.differing]
    observed = {**found.counts(), "differing": indexes, "floor": floor.to_json()}
    return Check(name, outcome, observed, expected, _tolerance(floor, rules), reason, evidence)


def _tolerance(floor: Floor, rules: Rules) -> dict[str, float] | int:
    return {"margin": rules.margin, "alpha": rules.alpha} if floor.texts else 0


def distinct_check(found: Comparison | None) -> Check:
    """``eval.distinct``: the answers of A and of B differ, or equality with one of them proves nothing."""
    expected = "A and B answer differently"
    if found is None:
        why = "A and B were not both evaluated: an earlier step did not hold"
        return Check("eval.distinct", Outcome.INCONCLUSIVE, None, expected, reason=why)
    observed = found.counts()
    if not observed["texts_differ"]:
        why = "questions insensitive: A and B answer every question alike; ask others, or more tokens (eval.max_tokens)"
        return Check("eval.distinct", Outcome.INCONCLUSIVE, observed, expected, 0, why)
    return Check("eval.distinct", Outcome.PASS, observed, expected, 0)


def paired_check(gates: Mapping[str, Comparison], shift: Comparison | None, floor: Floor | None, rules: Rules) -> Check:
    """``eval.paired``: McNemar's test, the paired difference with its interval and the smallest effect to be seen.

    ``gates`` are the comparisons that must show no change; ``shift`` is A against B, which may change and is only told.
    Where answers repeat exactly the gate is that records are equal, and a sample need not decide anything.
    """
    expected = "no change of correctness beyond the margin"
    if not gates or floor is None:
        why = "nothing was compared: an earlier step did not hold"
        return Check("eval.paired", Outcome.INCONCLUSIVE, None, expected, rules.to_json(), why)
    observed: dict[str, Any] = {name: statistics(one, floor, rules) for name, one in gates.items()}
    if shift is not None:
        observed["A to B"] = statistics(shift, floor, rules)
    outcome, reason = _paired(gates, floor, rules)
    return Check("eval.paired", outcome, observed, expected, rules.to_json(), reason)


def _paired(gates: Mapping[str, Comparison], floor: Floor, rules: Rules) -> tuple[Outcome, str]:
    worst: tuple[Outcome, str] = (Outcome.PASS, "")
    for name, found in gates.items():
        if not floor.texts and not found.differing and found.left.records:
            continue
        outcome, reason = judge_pairs(found, rules)
        if outcome is Outcome.FAIL:
            return outcome, f"{name}: {reason}"
        worst = (outcome, f"{name}: {reason}") if outcome is Outcome.INCONCLUSIVE else worst
    return worst


def same_server_problem(warm: Evaluation, cold: Evaluation) -> str | None:
    """Why a cold evaluation is none of the server under test, None when both were started alike."""
    apart = differing(cold.header["server"]["facts"], warm.header["server"]["facts"])
    if not apart:
        return None
    shown = ", ".join(f"{key}: {left!r} / {right!r}" for key, (left, right) in list(apart.items())[:SHOWN])
    return f"evaluations not comparable, {len(apart)} key(s) of their servers differ (cold / under test): {shown}"


def floor_of(repeat: Comparison | None) -> Floor | None:
    return None if repeat is None else measure_floor(repeat)


def _file(name: str) -> str:
    return f"evaluation-{name}.jsonl"


def need_reference(found: Evaluation, plan: str, content: str, path: str) -> None:
    """VerificationError for an evaluation that is not whole, asked something else, or does not tell its server; that is
    of another checkpoint than the one with ``content``, or of a server that was updated.
    """
    if pinned_digest(found.plan) != plan:
        raise VerificationError(f"{path} asked something else than this run: its plan is {pinned_digest(found.plan)}")
    if not found.complete or found.failed:
        raise VerificationError(f"{path} has {len(found.failed)} failed and {found.missing} missing records")
    server = found.header.get("server")
    if not isinstance(server, Mapping) or not isinstance(server.get("facts"), Mapping):
        raise VerificationError(f"{path} does not say which server answered, so it is no reference")
    found_content = server.get("content_digest")
    if found_content != content:
        raise VerificationError(f"{path} is of a checkpoint with the content {found_content}, B has {content}")
    # Null is a server of the run's own; a header without the key says nothing.
    instance = server.get("instance", {})
    told = instance.get("weight_version") if isinstance(instance, Mapping) else None
    label = UNTOUCHED if instance is None else told
    if server.get("updates") != 0 or label != UNTOUCHED:
        raise VerificationError(
            f"{path} is of a server after {server.get('updates')} updates of its run, with the weight version {label}: "
            "take a reference of a fresh server with lane=eval"
        )
