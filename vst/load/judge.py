"""Judging a whole load: every request that was sent must be accounted for, once, and be an answer that may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vst.errors import VerificationError
from vst.load.expected import Expected
from vst.load.findings import Finding, Policy, find
from vst.load.holdings import history
from vst.load.log import LoadLog
from vst.verdict import Check, Outcome

EXPECTED = "each request answered once, by the state that the server held, or refused as declared"


@dataclass(frozen=True)
class LoadReport:
    """What a load saw: how many answers of each kind and of each state, how many were open when a push began, and the
    first that is bad, in the order in which they were sent."""

    sent: int
    kinds: Mapping[str, int]
    claims: Mapping[str, int]
    crossing: int
    held_back: int
    first_bad: str | None
    bad: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def judge(log: LoadLog, expected: Mapping[str, Expected], policy: Policy) -> LoadReport:
    """Judge every answer of a load; VerificationError when its log cannot be judged at all."""
    told = history(log.marks)
    missing = {one.claim for one in told.holdings} - set(expected)
    if missing:
        raise VerificationError(f"there are no expected answers of {', '.join(sorted(missing))}")
    if log.sent is None:
        raise VerificationError("the log of the load has no end: it was not stopped in order")
    findings = [find(one, expected, told, policy) for one in log.answers]
    findings += [Finding(number, "lost", None, "the log says nothing of it") for number in log.lost()]
    findings += [Finding(number, "error", None, "the log answers it twice") for number in log.doubled()]
    bad = sorted((one for one in findings if not one.good), key=lambda one: one.number)
    return LoadReport(
        sent=log.sent,
        kinds=dict(sorted(Counter(one.kind for one in findings).items())),
        claims=dict(sorted(Counter(one.claim for one in findings if one.kind == "whole" and one.claim).items())),
        crossing=sum(told.crossed(one.sent, one.ended) is not None for one in log.answers),
        held_back=log.held_back,
        first_bad=_named(log, bad[0]) if bad else None,
        bad=len(bad),
    )


def _named(log: LoadLog, bad: Finding) -> str:
    one = next((one for one in log.answers if one.number == bad.number), None)
    if one is None:
        return f"request {bad.number}: {bad.kind}: {bad.text}"
    how = "stream" if one.stream else "plain"
    when = f"sent {one.sent - log.begun:.2f} s and ended {one.ended - log.begun:.2f} s into the load"
    return f"request {bad.number} (prompt {one.prompt}, {how}, {when}): {bad.kind}: {bad.text}"


def load_check(id: str, report: LoadReport, needed: Sequence[str], evidence: str) -> Check:
    """One check on a load. ``needed`` names the states of which at least one whole answer must have been seen: a load
    that asked nothing of a state says nothing about it."""
    observed = report.to_json()
    if report.first_bad is not None:
        reason = f"{report.bad} of {report.sent} answers are not what they may be; the first is {report.first_bad}"
        return Check(id, Outcome.FAIL, observed, EXPECTED, reason=reason, evidence=evidence)
    unseen = [claim for claim in needed if not report.claims.get(claim)]
    if unseen or not report.sent:
        what = f"no whole answer of {', '.join(unseen)} was seen" if unseen else "nothing was asked"
        reason = f"{what}: {report.sent} requests, {dict(report.kinds)}; give the load more time or a faster pace"
        return Check(id, Outcome.INCONCLUSIVE, observed, EXPECTED, reason=reason, evidence=evidence)
    return Check(id, Outcome.PASS, observed, EXPECTED, evidence=evidence)
