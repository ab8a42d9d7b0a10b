"""How a run ended, read from its files: a scheduler calls a failed program completed, so it is not asked for this."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vst.attempt import RUN_FILE, attempt_directory, attempts_begun, read_json
from vst.verdict import EXIT_CODES, EXIT_INTERRUPTED, EXIT_PASS, EXIT_TERMINATED, Outcome

LONGEST_REASON = 300


@dataclass(frozen=True)
class Ending:
    """The end of one run. ``evidence`` is the attempt's directory; None when the run left no verdict."""

    verdict: str
    exit_code: int
    reason: str
    cause: str | None = None
    attempt: int = 0
    server: str | None = None
    evidence: str | None = None

    @property
    def passed(self) -> bool:
        return self.exit_code == EXIT_PASS

    @property
    def interrupted(self) -> bool:
        """Ended by a signal: after a requeue there will be another attempt."""
        return self.exit_code in (EXIT_INTERRUPTED, EXIT_TERMINATED)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_ending(base: Path, after: int = 0) -> Ending | None:
    """The end of the latest attempt of the run at ``base`` with a number above ``after``; None when there is none."""
    number = attempts_begun(base)
    path = attempt_directory(base, max(number, 1))
    run = read_json(path / RUN_FILE) if number > after else None
    verdict = read_json(path / "verdict.json")
    if run is None or verdict is None or run.get("state") != "complete":
        return None
    return Ending(
        verdict=str(run.get("verdict")),
        exit_code=int(run.get("exit_code", EXIT_CODES[Outcome.ERROR])),
        reason=_reason(verdict),
        cause=verdict.get("cause"),
        attempt=number,
        server=(run.get("server") or {}).get("state"),
        evidence=str(path),
    )


def _reason(verdict: dict[str, Any]) -> str:
    if verdict.get("interrupted"):
        return "interrupted"
    for lane in verdict.get("lanes", ()):
        for check in lane.get("checks", ()):
            if check.get("outcome") not in ("pass", "not_applicable"):
                return f"{check['id']}: {check.get('reason') or check['outcome']}"[:LONGEST_REASON]
    return ""


def never_sent(reason: str) -> Ending:
    """The end of a run that no job was ever made for."""
    return Ending("FAIL_CLOSED", EXIT_CODES[Outcome.ERROR], f"not submitted: {reason}"[:LONGEST_REASON])


def no_verdict(story: str, cancelled: bool = False) -> Ending:
    """The end of a run that left no verdict: never a pass, whatever a scheduler says of its job."""
    code = EXIT_TERMINATED if cancelled else EXIT_CODES[Outcome.ERROR]
    return Ending("FAIL_CLOSED", code, f"no verdict: {story}"[:LONGEST_REASON], cause=Outcome.ERROR.value)
