"""What a run learns about itself while it goes on; the lanes fill it, every sidecar shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vst.provenance.timeline import Timeline


@dataclass
class Evidence:
    """Facts by the block that they end up in; None where nobody has looked yet or there is nothing to see.

    ``libraries`` is the publisher's report of itself, ``servers`` the command lines of servers that were started,
    ``reference`` the record of B that was used, ``previous`` the run that this one follows.
    """

    inputs: dict[str, Any] = field(default_factory=dict)
    defaults: list[dict[str, str]] = field(default_factory=list)
    source: Mapping[str, Any] | None = None
    machine: Mapping[str, Any] | None = None
    libraries: Mapping[str, Any] | None = None
    servers: list[dict[str, Any]] = field(default_factory=list)
    snapshot: Mapping[str, Any] | None = None
    reference: Mapping[str, Any] | None = None
    previous: Mapping[str, Any] | None = None
    timeline: Timeline = field(default_factory=Timeline)

    def default(self, key: str, value: object, origin: str) -> None:
        """Note a value that the tool filled in for ``key``, and where it came from."""
        self.defaults.append({"key": key, "value": str(value), "from": origin})
