"""One change of one cycle, as it is judged and as it is written to ``endurance.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vst.load.judge import LoadReport


@dataclass(frozen=True)
class Arrival:
    """Every seat's comparison and load, the seconds of the phases, and the memory after it in bytes.

    ``cycle`` counts from 1; 0 is what was brought before the first one. ``memory`` is None where it cannot be read.
    """

    cycle: int
    role: str
    name: str
    seats: tuple[Mapping[str, Any], ...]
    loads: tuple[LoadReport, ...] = ()
    phases: Mapping[str, float] | None = None
    memory: int | None = None

    @property
    def good(self) -> bool:
        return all(one["equal"] for one in self.seats)

    def to_json(self) -> dict[str, Any]:
        return {
            **{key: getattr(self, key) for key in ("cycle", "role", "name", "memory")},
            "phases": dict(self.phases or {}),
            "seats": [dict(one) for one in self.seats],
            "loads": [one.to_json() for one in self.loads],
        }
