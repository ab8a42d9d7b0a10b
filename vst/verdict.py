"""Checks and verdicts: what was found, how it is judged, and the exit code that follows.

A check never talks to anything; it is the record of one property after it was looked at. A lane is PASS when every
check of it passed or is declared not applicable; everything else is FAIL_CLOSED, with the worst cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(str, Enum):
    """How one check ended; the README says what each means."""

    PASS = "pass"
    FAIL = "fail"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    NOT_APPLICABLE = "not_applicable"


CAUSES = (Outcome.FAIL, Outcome.ERROR, Outcome.REFUSED, Outcome.INCONCLUSIVE)
"""Negative outcomes, worst first."""

EXIT_CODES = {Outcome.FAIL: 10, Outcome.REFUSED: 11, Outcome.INCONCLUSIVE: 12, Outcome.ERROR: 20}
EXIT_PASS = 0
EXIT_CONFIG = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


@dataclass(frozen=True)
class Check:
    """One property with what was observed, what was expected and how far apart they may be.

    ``id`` is ``group.name`` as in the protocol; ``reason`` is empty only for a plain pass; ``evidence`` names a file of
    the run directory; ``warnings`` are facts that do not change the outcome but must not be silent.
    """

    id: str
    outcome: Outcome
    observed: Any = None
    expected: Any = None
    tolerance: Any = None
    reason: str = ""
    evidence: str | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "outcome": self.outcome.value,
            "observed": self.observed,
            "expected": self.expected,
            "tolerance": self.tolerance,
            "reason": self.reason,
            "evidence": self.evidence,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class LaneVerdict:
    """The checks of one lane and the judgement that follows from them."""

    lane: str
    checks: tuple[Check, ...]

    @property
    def cause(self) -> Outcome | None:
        """The worst negative outcome; ``INCONCLUSIVE`` for a lane without one effective check; None for PASS."""
        found = {check.outcome for check in self.checks}
        for cause in CAUSES:
            if cause in found:
                return cause
        return None if Outcome.PASS in found else Outcome.INCONCLUSIVE

    @property
    def passed(self) -> bool:
        return self.cause is None

    @property
    def word(self) -> str:
        return "PASS" if self.passed else "FAIL_CLOSED"

    def failing(self) -> list[Check]:
        return [check for check in self.checks if check.outcome in CAUSES]

    def to_json(self) -> dict[str, Any]:
        return {
            "lane": self.lane,
            "verdict": self.word,
            "cause": self.cause.value if self.cause else None,
            "checks": [check.to_json() for check in self.checks],
        }


@dataclass
class Verdict:
    """The judgement of a whole run: the lanes in the order they ran, up to the first that did not pass."""

    lane: str
    lanes: list[LaneVerdict] = field(default_factory=list)
    server_state: str = "unknown"
    covered: dict[str, Any] | None = None
    interrupted: int | None = None

    @property
    def cause(self) -> Outcome | None:
        found = [lane.cause for lane in self.lanes]
        for cause in CAUSES:
            if cause in found:
                return cause
        return None if self.lanes else Outcome.INCONCLUSIVE

    @property
    def passed(self) -> bool:
        return self.interrupted is None and self.cause is None

    @property
    def word(self) -> str:
        return "PASS" if self.passed else "FAIL_CLOSED"

    @property
    def exit_code(self) -> int:
        if self.interrupted is not None:
            return self.interrupted
        cause = self.cause
        return EXIT_PASS if cause is None else EXIT_CODES[cause]

    def failing(self) -> list[Check]:
        return [check for lane in self.lanes for check in lane.failing()]


def worst(codes: Iterable[int]) -> int:
    """The exit code of a sweep: 0 only if all are 0, otherwise the highest."""
    return max(codes, default=EXIT_PASS)
