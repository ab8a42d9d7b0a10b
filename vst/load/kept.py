"""Streams that a pause froze and a resume let go on: token for token what they are when nothing pauses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vst.load.expected import Expected
from vst.load.findings import Policy, find
from vst.load.holdings import History, Pause, history
from vst.load.log import LoadLog
from vst.load.seen import Seen
from vst.verdict import Check, Outcome

EXPECTED = "streams frozen in the middle, silent during the pause, and equal to the unpaused run token for token"


@dataclass(frozen=True)
class Kept:
    """One stream that was open in a pause: its tokens before it, in it, and after it, and what is wrong with it."""

    number: int
    before: int
    during: int
    after: int
    frozen_s: float
    kind: str
    fault: str | None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def kept_streams(log: LoadLog, expected: Mapping[str, Expected], policy: Policy) -> list[Kept]:
    """Every stream that had begun when a pause of mode ``keep`` was acknowledged and had not ended."""
    told = history(log.marks)
    pairs = ((one, pause) for pause in told.pauses if pause.mode == "keep" for one in log.answers if one.stream)
    return [_kept(one, pause, expected, told, policy) for one, pause in pairs if _caught(one, pause)]


def _caught(one: Seen, pause: Pause) -> bool:
    """Whether it was in the middle: some tokens before the pause, and more to come, or an end that never came."""
    return bool(one.arrivals) and one.arrivals[0] <= pause.still < one.ended


def _kept(one: Seen, pause: Pause, expected: Mapping[str, Expected], told: History, policy: Policy) -> Kept:
    settled = pause.still + policy.settle_s
    finding = find(one, expected, told, policy)
    after = sum(at >= pause.moving for at in one.arrivals)
    fault = None if finding.kind in ("whole", "tie") else f"{finding.kind}: {finding.text}"
    return Kept(
        number=one.number,
        before=sum(at <= settled for at in one.arrivals),
        during=sum(settled < at < pause.moving for at in one.arrivals),
        after=after,
        frozen_s=round(pause.moving - pause.still, 6),
        kind=finding.kind,
        fault=fault,
    )


def kept_check(id: str, streams: Sequence[Kept], evidence: str) -> Check:
    """One check on all streams that a pause caught; inconclusive when it caught none that had tokens left."""
    observed = [one.to_json() for one in streams]
    bad = next((one for one in streams if one.fault is not None), None)
    if bad is not None:
        reason = f"stream {bad.number}, paused after {bad.before} tokens for {bad.frozen_s:g} s: {bad.fault}"
        return Check(id, Outcome.FAIL, observed, EXPECTED, reason=reason, evidence=evidence)
    if not any(one.before and one.after and one.kind == "whole" for one in streams):
        reason = "the pause caught no stream in the middle: ask for longer answers (load.output_tokens)"
        return Check(id, Outcome.INCONCLUSIVE, observed, EXPECTED, reason=reason, evidence=evidence)
    return Check(id, Outcome.PASS, observed, EXPECTED, evidence=evidence)
