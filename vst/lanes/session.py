"""What one run holds: its configuration and directory, the servers, the publisher, and the records taken so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vst.checkpoint.manifest import Manifest
from vst.checkpoint.stability import FileIdentity
from vst.config import VstConf
from vst.errors import VerificationError
from vst.evals.store import Evaluation
from vst.lanes.fleet import Fleet
from vst.lanes.fleet import Server as Server
from vst.load.generator import Load
from vst.oracle.probes import ProbeSet
from vst.oracle.record import Record
from vst.oracle.reference import Reference
from vst.provenance.rundir import RunDir
from vst.server.facts import ServerFacts
from vst.server.lifecycle import Lifecycle
from vst.server.lock import ServerLock
from vst.server.speculation import Drafted
from vst.transfer.publisher import Publisher

if TYPE_CHECKING:
    from vst.lanes.cold_evaluation import ColdEvaluation


class Progress(Protocol):
    """Whoever shows the run while it goes on."""

    def say(self, text: str) -> None: ...

    def bytes(self, what: str, done: int, total: int) -> None: ...


@dataclass
class Session:
    """The state of one run; lanes fill it in the order in which they need it.

    ``audited`` are the files of each checkpoint as they were before the audit. ``servers`` are those that can be
    asked, ``seats`` all places of them that answer by themselves (each server, or each data-parallel rank), ``fleet``
    the servers once they were examined. ``loads`` are told what is done to the servers, ``watchers`` hear what the
    publisher reports, and ``detours`` are the addresses by which the publisher calls servers instead of their own.
    """

    conf: VstConf
    run: RunDir
    progress: Progress
    manifests: dict[str, Manifest] = field(default_factory=dict)
    manifest_files: dict[str, Path] = field(default_factory=dict)
    audited: dict[str, dict[str, FileIdentity]] = field(default_factory=dict)
    servers: tuple[Server, ...] = ()
    seats: tuple[Server, ...] = ()
    fleet: Fleet | None = None
    locks: list[ServerLock] = field(default_factory=list)
    publisher: Publisher | None = None
    joined: bool = False
    probes: ProbeSet | None = None
    records: list[Record] = field(default_factory=list)
    floor: float | None = None
    reference: Reference | None = None
    transactions: int = 0
    label: str | None = None
    labels: dict[str, str | None] | None = None
    covered: dict[str, Any] | None = None
    drafted: dict[str, Drafted] = field(default_factory=dict)
    evaluation: ColdEvaluation | None = None
    cold_evaluation: Evaluation | None = None
    loads: list[Load] = field(default_factory=list)
    watchers: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    detours: dict[str, str] = field(default_factory=dict)

    @property
    def server(self) -> Server | None:
        """The first server: the only one of most runs."""
        return self.servers[0] if self.servers else None

    @property
    def seat(self) -> Server | None:
        """The first seat, which is asked where one answer is enough."""
        return self.seats[0] if self.seats else None

    @property
    def facts(self) -> ServerFacts | None:
        """What the first server said of itself."""
        return self.fleet.replicas[0].facts if self.fleet else None

    @property
    def lifecycle(self) -> Lifecycle | None:
        """The first server's state; what moves all servers is the fleet."""
        return self.fleet.replicas[0].lifecycle if self.fleet else None

    def need(self, name: str) -> Any:
        """A part of the session that an earlier lane must have filled; VerificationError when it has not."""
        value = getattr(self, name)
        if value is None:
            raise VerificationError(f"{name} is not there yet: an earlier lane did not run")
        return value
