"""The checks on pauses, judged from the logs of their loads alone. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vst.load.expected import Expected
from vst.load.findings import Policy, find
from vst.load.holdings import Pause, history
from vst.load.judge import LoadReport, judge
from vst.load.kept import kept_check, kept_streams
from vst.load.log import LoadLog
from vst.load.seen import Seen
from vst.verdict import Check, Outcome

UNAVAILABLE = (503,)
"""The status with which a server turns requests away while it does not serve."""


def policy_of(declared: str, aborted: bool, settle_s: float) -> Policy:
    """What an answer may be around a pause where requests are ``held``, ``refused`` or ``either``."""
    return Policy(UNAVAILABLE if declared != "held" else (), aborted, False, settle_s)


def keep_check(logs: Mapping[str, LoadLog], expected: Mapping[str, Expected], policy: Policy) -> Check:
    """``pause.keep``: in every log the streams that were frozen are the unpaused ones, and all other answers whole."""
    checks, observed = [], {}
    for name, log in logs.items():
        report, streams = judge(log, expected, policy), kept_streams(log, expected, policy)
        observed[name] = {"frozen": [one.to_json() for one in streams], "load": report.to_json()}
        checks.append(_with_load(kept_check("pause.keep", streams, f"load-pause-{name}.jsonl"), report))
    worst = next((one for one in checks if one.outcome is Outcome.FAIL), None)
    worst = worst or next((one for one in checks if one.outcome is not Outcome.PASS), checks[-1])
    return Check("pause.keep", worst.outcome, observed, worst.expected, None, worst.reason, worst.evidence)


def _with_load(check: Check, report: LoadReport) -> Check:
    if check.outcome is Outcome.FAIL or report.first_bad is None:
        return check
    return Check(check.id, Outcome.FAIL, None, check.expected, None, report.first_bad, check.evidence)


def abort_check(log: LoadLog, expected: Mapping[str, Expected], policy: Policy) -> Check:
    """``pause.abort``: every stream that had begun ended as ``abort`` and is the start of the whole one."""
    wanted = "each stream in flight ends with reason abort, its tokens the start of the unpaused answer"
    report, pauses = judge(log, expected, policy), history(log.marks).pauses
    open_then = [(one, pause) for pause in pauses for one in _begun(log, pause)]
    survived = [one.number for one, pause in open_then if one.ended > pause.moving and one.finish != "abort"]
    observed = {"in_flight": len(open_then), "survived": survived, "load": report.to_json()}
    reason, outcome = "", Outcome.PASS
    if report.first_bad is not None:
        reason, outcome = report.first_bad, Outcome.FAIL
    elif survived:
        reason, outcome = f"the streams {survived} went on after the pause, as if it had kept them", Outcome.FAIL
    elif not open_then or not report.kinds.get("aborted"):
        reason, outcome = "the pause caught no stream in the middle: give load.output_tokens more", Outcome.INCONCLUSIVE
    return Check("pause.abort", outcome, observed, wanted, None, reason, "load-pause-abort.jsonl")


def wait_check(log: LoadLog, expected: Mapping[str, Expected], policy: Policy) -> Check:
    """``pause.wait``: every stream in flight ended whole before the pause was acknowledged."""
    wanted = "each stream in flight ends whole, before the pause is acknowledged"
    report, pauses = judge(log, expected, policy), history(log.marks).pauses
    open_then = [(one, pause) for pause in pauses for one in _begun(log, pause)]
    late = [one.number for one, pause in open_then if one.ended > pause.still + policy.settle_s]
    admitted = [one.number for pause in pauses for one in log.answers if _admitted(one, pause, policy.settle_s)]
    observed = {"in_flight": len(open_then), "late": late, "admitted": admitted, "load": report.to_json()}
    reason, outcome = "", Outcome.PASS
    if report.first_bad is not None:
        reason, outcome = report.first_bad, Outcome.FAIL
    elif late:
        reason, outcome = f"the pause was acknowledged while the streams {late} were still open", Outcome.FAIL
    elif admitted:
        reason = f"the requests {admitted} were sent after the pause and answered while it waited: it may never end"
        outcome = Outcome.FAIL
    elif not open_then:
        reason, outcome = "the pause caught no stream in the middle: give load.output_tokens more", Outcome.INCONCLUSIVE
    return Check("pause.wait", outcome, observed, wanted, None, reason, "load-pause-wait.jsonl")


def _begun(log: LoadLog, pause: Pause) -> list[Seen]:
    """The streams that were surely in flight when a pause began: a token had come, and the end had not.

    One that was sent shortly before and had no token yet may have reached the server after the pause did.
    """
    return [one for one in log.answers if one.arrivals and one.arrivals[0] < pause.begun < one.ended]


def _admitted(one: Seen, pause: Pause, settle_s: float) -> bool:
    """Whether a request was let in while the pause still waited for those before it."""
    return one.error is None and one.sent > pause.begun + settle_s and one.ended < pause.still


def knock(log: LoadLog, expected: Mapping[str, Expected], settle_s: float) -> dict[str, Any]:
    """What became of the one request of a log that was sent while the server did not serve.

    ``policy`` is ``held`` (answered after, by what the server held then), ``refused`` (turned away), ``answered``
    (while it did not serve) or ``lost`` (neither answered as it should nor turned away).
    """
    told = history(log.marks)
    pause: Pause = told.pauses[0]
    if not log.answers:
        return {"policy": "lost", "status": None, "text": "the log says nothing of it"}
    one = log.answers[0]
    if one.status is not None and not 200 <= one.status < 300:
        return {"policy": "refused", "status": one.status, "text": one.error}
    early = sum(at < pause.moving for at in one.arrivals)
    if early or (one.error is None and one.ended < pause.moving):
        return {"policy": "answered", "status": one.status, "text": f"{early} of {len(one.tokens)} tokens came then"}
    found = find(one, expected, told, policy_of("held", False, settle_s))
    return {"policy": "held" if found.good else "lost", "status": one.status, "text": found.text}


def admission_check(knocks: Mapping[str, Mapping[str, Any]], declared: Mapping[str, str], wanted: int) -> Check:
    """``pause.admission``: each request that knocked was held or turned away, as ``lifecycle.admission`` declares."""
    expected = {name: declared[declared_for(name)] for name in knocks}
    observed = {name: dict(one) for name, one in knocks.items()}
    for name, one in knocks.items():
        allowed = ("held", "refused") if expected[name] == "either" else (expected[name],)
        if one["policy"] not in allowed or (one["policy"] == "refused" and one["status"] not in UNAVAILABLE):
            how = f"{one['policy']} (status {one['status']}, {one['text'] or 'nothing wrong'})"
            reason = f"a request that was sent in state {name} was {how}, declared is {expected[name]}"
            return Check("pause.admission", Outcome.FAIL, observed, expected, None, reason, f"load-knock-{name}.jsonl")
    if len(knocks) < wanted:
        reason = f"only {len(knocks)} of {wanted} states were reached: an earlier step did not hold"
        return Check("pause.admission", Outcome.INCONCLUSIVE, observed, expected, reason=reason)
    return Check("pause.admission", Outcome.PASS, observed, expected)


def declared_for(name: str) -> str:
    """The key of ``lifecycle.admission`` that speaks of a state by the name of its knock."""
    return "keep" if name == "keep-cache" else "asleep" if name.startswith("asleep") else name
