"""What the negative controls proved: which tensor families are visible through the probes, and which are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vst.report.material import Material

PREFIX = "control."


@dataclass(frozen=True)
class Family:
    """One tensor family: how its control ended, its tensors and the share of positions at which it was noticed."""

    name: str
    outcome: str
    tensors: int | None
    differing: int | None
    positions: int | None
    largest: float | None
    reason: str
    evidence: str | None

    @property
    def seen(self) -> bool:
        return self.outcome == "pass"

    @property
    def share(self) -> float:
        return self.differing / self.positions if self.differing and self.positions else 0.0


def families(material: Material) -> list[Family]:
    """All families that a control was made or declared for, in the order of the run."""
    return [_family(check) for _, check in material.checks() if str(check.get("id")).startswith(PREFIX)]


def _family(check: Mapping[str, Any]) -> Family:
    observed = check.get("observed")
    seen: Mapping[str, Any] = observed if isinstance(observed, Mapping) else {}
    return Family(
        name=str(check.get("id"))[len(PREFIX) :],
        outcome=str(check.get("outcome")),
        tensors=_whole(seen.get("tensors")),
        differing=_whole(seen.get("differing")),
        positions=_whole(seen.get("positions")),
        largest=float(found) if isinstance(found := seen.get("largest_difference"), (int, float)) else None,
        reason=str(check.get("reason") or ""),
        evidence=check.get("evidence"),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
