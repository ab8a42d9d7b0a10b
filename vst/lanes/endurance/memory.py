"""What a run can see of the memory of all its servers together."""

from __future__ import annotations

from dataclasses import dataclass

from vst.errors import VerificationError
from vst.lanes.memory import source_of
from vst.lanes.session import Session
from vst.server.memory import Source

FIRST_ONLY = ("pid", "device")
"""Declared sources that speak of one process, or of all GPUs at once: read once, however many servers there are."""


@dataclass(frozen=True)
class Memory:
    """Where the bytes are read, once for every server; without a source ``name`` says why there is none."""

    name: str
    sources: tuple[Source, ...] = ()

    def used(self) -> int | None:
        """The bytes that all servers use; None without a source."""
        return sum(source.read() for source in self.sources) if self.sources else None


def memory_of(session: Session) -> Memory:
    """The memory of this run's servers, as ``server.memory`` or the processes that it started tell it."""
    kind = (session.conf.server.memory or "").partition(":")[0]
    once = kind in FIRST_ONLY or (not kind and session.conf.server.kind == "gpu")
    servers = session.servers[:1] if once else session.servers
    try:
        sources = tuple(source_of(session, server) for server in servers)
    except VerificationError as error:
        return Memory(str(error))
    return Memory("; ".join(source.name for source in sources), sources)
