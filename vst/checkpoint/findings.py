"""From what was found to a check: the rule that every check of lane L0 shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vst.checkpoint.regular import bounded
from vst.verdict import Check, Outcome

SHOWN = 20


@dataclass
class Findings:
    """What one check saw: facts by role, problems that refuse the checkpoint, warnings that do not."""

    observed: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def complain(self, message: str, allowed: bool) -> None:
        """A problem, or only a warning when the user declared it as allowed."""
        (self.warnings if allowed else self.problems).append(message)


def listed(problems: Sequence[str]) -> str:
    """The first 20 problems and the number of the others."""
    shown = "; ".join(map(bounded, problems[:SHOWN]))
    return shown + (f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else "")


def judge(check: str, found: Findings, expected: str) -> Check:
    """``pass`` without problems, ``refused`` with them; never one without the warnings."""
    outcome = Outcome.REFUSED if found.problems else Outcome.PASS
    warnings = tuple(found.warnings)
    return Check(check, outcome, found.observed, expected, reason=listed(found.problems), warnings=warnings)


def not_evaluated(check: str, because: str) -> Check:
    """The check could not be looked at, because the check ``because`` did not hold."""
    return Check(check, Outcome.REFUSED, reason=f"not evaluated: {because} did not hold")


def not_applicable(check: str, reason: str) -> Check:
    return Check(check, Outcome.NOT_APPLICABLE, reason=reason)
