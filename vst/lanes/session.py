"""What one run holds: its configuration and directory, the server, the publisher, and the records taken so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vst.checkpoint.manifest import Manifest
from vst.config import VstConf
from vst.errors import VerificationError
from vst.oracle.probes import ProbeSet
from vst.oracle.record import Record
from vst.oracle.reference import Reference
from vst.provenance.rundir import RunDir
from vst.server.client import ControlPlane
from vst.server.facts import ServerFacts
from vst.server.lifecycle import Lifecycle
from vst.server.lock import ServerLock
from vst.server.process import ServerProcess
from vst.transfer.publisher import Publisher


class Progress(Protocol):
    """Whoever shows the run while it goes on."""

    def say(self, text: str) -> None: ...

    def bytes(self, what: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Server:
    """A server that can be asked: the control plane, how it was started if we did, and the log of that."""

    control: ControlPlane
    name: str
    process: ServerProcess | None = None


@dataclass
class Session:
    """The state of one run; lanes fill it in the order in which they need it."""

    conf: VstConf
    run: RunDir
    progress: Progress
    manifests: dict[str, Manifest] = field(default_factory=dict)
    manifest_files: dict[str, Path] = field(default_factory=dict)
    server: Server | None = None
    facts: ServerFacts | None = None
    lifecycle: Lifecycle | None = None
    lock: ServerLock | None = None
    publisher: Publisher | None = None
    joined: bool = False
    probes: ProbeSet | None = None
    records: list[Record] = field(default_factory=list)
    floor: float | None = None
    reference: Reference | None = None
    transactions: int = 0
    label: str | None = None
    covered: dict[str, Any] | None = None

    def need(self, name: str) -> Any:
        """A part of the session that an earlier lane must have filled; VerificationError when it has not."""
        value = getattr(self, name)
        if value is None:
            raise VerificationError(f"{name} is not there yet: an earlier lane did not run")
        return value
