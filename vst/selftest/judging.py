"""Whether a row came out as it must. Pure functions over what the row's run left on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vst.selftest.row import Row
from vst.verdict import CAUSES

GOOD = ("caught", "passed")
NEGATIVE = {cause.value for cause in CAUSES}
SERVING_MOVES = ("/resume", "/finish_weight_update", "/wake_up")
"""What must never be sent to a server that was given up."""


@dataclass(frozen=True)
class Ran:
    """What one run of a row left: its exit code, its verdict (None when there is none) with the digest of that file,
    and the serving calls that were sent to a server after it was given up.
    """

    code: int
    verdict: Mapping[str, Any] | None
    after_taint: tuple[str, ...]
    seconds: float
    directory: str
    verdict_sha256: str | None = None


@dataclass(frozen=True)
class Result:
    """How a row ended: ``caught`` or ``passed`` as it should, else ``missed``, ``false alarm``, ``wrong check``,
    ``unsafe`` or ``no verdict``.
    """

    row: str
    seed: int
    outcome: str
    verdict: str | None
    exit_code: int
    failing: tuple[str, ...]
    reason: str
    seconds: float
    directory: str
    verdict_sha256: str | None

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "failing": list(self.failing)}


def judge(row: Row, seed: int, ran: Ran) -> Result:
    """The result of one row."""
    outcome, reason = _outcome(row, ran)
    verdict = ran.verdict["verdict"] if ran.verdict else None
    failing = tuple(check["id"] for check in _failing(ran.verdict))
    seconds = round(ran.seconds, 2)
    return Result(
        row.name, seed, outcome, verdict, ran.code, failing, reason, seconds, ran.directory, ran.verdict_sha256
    )


def _outcome(row: Row, ran: Ran) -> tuple[str, str]:
    if ran.verdict is None or ran.verdict["exit_code"] != ran.code:
        return "no verdict", f"the run ended with {ran.code} and left no verdict that says so"
    if row.healthy:
        return _healthy(row, ran.verdict)
    if ran.verdict["verdict"] == "PASS":
        return "missed", f"PASS, expected FAIL_CLOSED by {', '.join(row.checks)}"
    failing = _failing(ran.verdict)
    ids = [check["id"] for check in failing]
    told = [check for check in failing if check["id"] in row.checks and check["outcome"] in row.outcomes]
    missing = sorted(set(row.checks) - {check["id"] for check in told})
    if missing:
        return "wrong check", f"{', '.join(missing)} noticed nothing; these did not hold: {', '.join(ids) or 'none'}"
    reasons = [check["reason"] for check in told]
    if not any(row.says in reason for reason in reasons):
        return "wrong check", f"no reason says {row.says!r}: {reasons}"
    if ran.after_taint:
        return "unsafe", f"sent to a server that was given up: {', '.join(ran.after_taint)}"
    return "caught", reasons[0]


def _healthy(row: Row, verdict: Mapping[str, Any]) -> tuple[str, str]:
    if verdict["verdict"] != "PASS":
        told = "; ".join(f"{check['id']}: {check['reason']}" for check in _failing(verdict))
        return "false alarm", f"{verdict['verdict']}: {told}"
    warned = [check["id"] for check in _checks(verdict) if check["warnings"]]
    if "server.dialect" not in warned:
        return "unsafe", "the verdict does not say that the server was a scripted double"
    if row.warning is not None and row.warning not in warned:
        return "missed", f"{row.warning} did not warn"
    return "passed", ""


def _checks(verdict: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return [check for lane in (verdict or {}).get("lanes", []) for check in lane["checks"]]


def _failing(verdict: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return [check for check in _checks(verdict) if check["outcome"] in NEGATIVE]


def sent_after_taint(events: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The calls that make a server serve which were sent after it was given up."""
    tainted, sent = False, []
    for event in events:
        if event["kind"] == "server_state":
            tainted = tainted or event["after"] == "tainted"
        elif tainted and event["kind"] in ("http", "publisher_http") and event["path"] in SERVING_MOVES:
            sent.append(event["path"])
    return tuple(sent)
