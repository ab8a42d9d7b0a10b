"""The lifecycle of a run: its phases in the order in which they began, with wall-clock starts and monotonic durations.

A phase belongs to a transaction or to the run as a whole. What a phase could not tell is null with a reason: a phase
that never ended has no duration, an NCCL push has no bucket count.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vst.provenance.block import Block
from vst.provenance.encoding import utc_now

T = TypeVar("T")

EMBEDDED = 200
"""A sidecar holds at most this many phases and transactions, the first and the last; ``lifecycle.json`` then all."""

INNER = ("start", "broadcast", "finish")
"""The publisher's phases inside of a push."""


@dataclass
class Phase:
    """One phase; ``seconds`` is None until it ended, and stays so when ``failure`` says why it did not."""

    name: str
    transaction: int | None
    began: str = field(default_factory=utc_now)
    begun: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    bytes: int | None = None
    failure: str = "still going on"

    def end(self) -> None:
        if self.seconds is None:
            self.seconds = round(time.monotonic() - self.begun, 6)

    def to_json(self) -> dict[str, Any]:
        block = Block().put("phase", self.name).put("began", self.began)
        block.put("transaction", self.transaction, "part of the run, not of a transaction")
        block.put("seconds", self.seconds, f"did not end: {self.failure}")
        if self.bytes is not None:
            block.put("bytes", self.bytes)
        return block.to_json()


@dataclass
class Transaction:
    """One transaction as a whole; ``before`` and ``after`` are the weight versions."""

    number: int
    purpose: str
    before: str | None
    began: str = field(default_factory=utc_now)
    begun: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    outcome: str = "in_progress"
    bytes: int | None = None
    buckets: int | None = None
    after: str | None = None
    failure: str = "still going on"

    def to_json(self) -> dict[str, Any]:
        version = Block().put("before", self.before, "the server did not say")
        version.put("after", self.after, f"not finished: {self.failure}")
        block = Block().put("number", self.number).put("purpose", self.purpose).put("outcome", self.outcome)
        block.put("began", self.began).put("seconds", self.seconds, f"did not end: {self.failure}")
        block.put("bytes", self.bytes, f"not finished: {self.failure}")
        block.put("buckets", self.buckets, "not finished, or the backend does not tell how it cuts")
        return block.put("weight_version", version.to_json()).to_json()


class Timeline:
    """Collects phases and transactions while a run goes on."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.transactions: list[Transaction] = []
        self._current: Transaction | None = None
        self._inner: Phase | None = None

    def open(self, number: int, purpose: str, before: str | None) -> Transaction:
        """Begin a transaction; the phases that follow belong to it until ``close``."""
        self._current = Transaction(number, purpose, before)
        self.transactions.append(self._current)
        return self._current

    def close(self, after: str | None, nbytes: int, buckets: int | None) -> None:
        """The transaction was finished and everything around it done."""
        if self._current is not None:
            self._current.outcome, self._current.after = "finished", after
            self._current.bytes, self._current.buckets = nbytes, buckets
            self._stop()

    def fail(self, reason: str) -> None:
        """The transaction ended in the middle; phases that are open stay without a duration."""
        if self._current is not None:
            self._current.outcome, self._current.failure = "failed", reason
            for phase in self.phases:
                if phase.seconds is None and phase.transaction == self._current.number:
                    phase.failure = reason
            self._stop()

    def _stop(self) -> None:
        if self._current is not None:
            self._current.seconds = round(time.monotonic() - self._current.begun, 6)
        self._current = self._inner = None

    def begin(self, name: str) -> Phase:
        phase = Phase(name, self._current.number if self._current else None)
        self.phases.append(phase)
        return phase

    def publisher(self, report: Mapping[str, Any]) -> None:
        """Follow the publisher's reports: its phases inside a push, and the bytes that left."""
        if report["event"] == "phase" and report["phase"] in INNER:
            self._end_inner()
            self._inner = self.begin(f"push.{report['phase']}")
        elif report["event"] == "progress" and self._inner is not None and self._inner.name == "push.broadcast":
            self._inner.bytes = int(report["bytes"])
        elif report["event"] == "done":
            self._end_inner()

    def _end_inner(self) -> None:
        if self._inner is not None:
            self._inner.end()
        self._inner = None

    def whole(self) -> dict[str, Any]:
        """Everything, as it is written to ``lifecycle.json`` when it is too long for a sidecar."""
        return {
            "phases": [phase.to_json() for phase in self.phases],
            "transactions": [transaction.to_json() for transaction in self.transactions],
        }

    @property
    def long(self) -> bool:
        return max(len(self.phases), len(self.transactions)) > EMBEDDED

    def block(self, file: Mapping[str, str] | None) -> dict[str, Any]:
        """The block of a sidecar; ``file`` names ``lifecycle.json`` and its digest where that was written."""
        block = Block()
        block.put("phases", [phase.to_json() for phase in _ends(self.phases)])
        block.put("transactions", [transaction.to_json() for transaction in _ends(self.transactions)])
        counts = {"phases": len(self.phases), "transactions": len(self.transactions)}
        block.put("omitted", {key: max(0, count - EMBEDDED) for key, count in counts.items()})
        return block.put("file", file, "nothing was left out, or the run is still going on").to_json()


def _ends(items: list[T]) -> list[T]:
    half = EMBEDDED // 2
    return items if len(items) <= EMBEDDED else [*items[:half], *items[-half:]]
