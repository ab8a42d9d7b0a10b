"""One row of the table: a server, healthy or with faults, the lane that it is put through, and what must come out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from vst.selftest.fault import Fault, make, to_json

PROBES = 4
"""How many probes the runs of all rows ask."""


@dataclass(frozen=True)
class Row:
    """``checks`` are those that must not hold, all of them; none for a healthy server, which must PASS.

    ``says`` is text that the reason of one of them must contain, ``warning`` a check of a PASS that must warn.
    """

    name: str
    lane: str
    faults: tuple[Fault, ...] = ()
    checks: tuple[str, ...] = ()
    says: str = ""
    warning: str | None = None
    pair: str = "tiny"
    overrides: tuple[str, ...] = ()
    quick: bool = False

    @property
    def healthy(self) -> bool:
        return not self.checks

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "lane": self.lane,
            "pair": self.pair,
            "faults": [to_json(fault) for fault in self.faults],
            "expected": {"checks": list(self.checks), "says": self.says, "warning": self.warning},
            "overrides": list(self.overrides),
        }

    def words(self) -> list[str]:
        """The row's part of a command line: lane, server, faults and its own overrides."""
        faults = ",".join(quoted(json.dumps(to_json(fault))) for fault in self.faults)
        return [f"lane={self.lane}", "server=scripted", f"server.faults=[{faults}]", *self.overrides]


def quoted(text: str) -> str:
    """Text as a quoted value on Hydra's command line: a quote, and backslashes before one, are escaped."""
    escaped = ""
    for number, part in enumerate(text.split("'")):
        slashes = len(part) - len(part.rstrip("\\"))
        escaped += ("'" if number else "") + part + "\\" * (slashes + 1)
    return "'" + escaped[:-1] + "'"


def fault(kind: str, **fields: Any) -> tuple[Fault, ...]:
    """One fault, as the faults of a row."""
    return (make(kind, **fields),)
