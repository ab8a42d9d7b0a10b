"""What the publisher is told: where to join, and what to send. Plain data that crosses the pipe as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PHASES = ("boot", "join", "start", "broadcast", "finish")
"""The phases of a publisher in order; each has a deadline that the parent holds."""


@dataclass(frozen=True)
class Member:
    """One server of a transfer group: where it is called, how many workers it brings, and its name in messages.

    ``title`` is empty for the only one.
    """

    base_url: str
    workers: int
    title: str = ""


@dataclass(frozen=True)
class JoinPlan:
    """Where the group meets and which servers belong to it.

    ``layout`` is a manifest file: every push of this session has its names, dtypes and shapes. ``api_key_env`` names
    the variable that holds the key. ``ring`` is how many buckets the sender reads ahead at most; ``staging`` is how
    tensors get to a GPU that sends: one ``tensor`` at a time, or ``pipelined`` through the ring.
    """

    layout: str
    members: tuple[Member, ...]
    api_key_env: str | None
    backend: str
    master_address: str
    port: int
    bucket_bytes: int | None
    device: str
    timeout_s: float
    http_timeout_s: float
    ring: int = 4
    staging: str = "tensor"

    @property
    def same_host(self) -> bool:
        """Whether the workers surely run on the sender's machine: they reach it by its loopback address."""
        return self.master_address == "localhost" or self.master_address.startswith("127.")

    @property
    def world_size(self) -> int:
        """The size of the group: the sender, which is rank 0, and every worker of every server."""
        return 1 + sum(member.workers for member in self.members)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The rank of each server's first worker; the workers of the servers follow one another."""
        return tuple(1 + sum(one.workers for one in self.members[:index]) for index in range(len(self.members)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> JoinPlan:
        return JoinPlan(**{**data, "members": tuple(Member(**member) for member in data["members"])})


@dataclass(frozen=True)
class PushPlan:
    """One transaction: the manifest to send, the tensors taken from another one instead, and the label to set.

    ``manifest`` and ``other`` are files written by ``Manifest.to_json``. ``from_other`` names the tensors whose bytes
    come from ``other`` (a negative control); empty for an honest push. ``rate_limit`` is in bytes a second, None for
    none. ``draft``: the tensors are for the server's draft, in a transaction of its own; ``label`` is then that of the
    model, which stays, and None for a server that has none. ``only`` names the tensors of a partial push, which leaves
    all others as they are on the server; empty for a whole one.
    """

    manifest: str
    label: str | None
    other: str | None = None
    from_other: tuple[str, ...] = field(default=())
    rate_limit: float | None = None
    draft: bool = False
    only: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> PushPlan:
        return PushPlan(**{**data, "from_other": tuple(data["from_other"]), "only": tuple(data.get("only", ()))})


@dataclass(frozen=True)
class Sent:
    """What left the machine: tensors and bytes in the order sent, and the digest of those bytes by content.

    ``stages`` says how long reading, hashing, staging, sending and the server's call were at work, in the format of
    ``stages.py``; ``memory`` is the footprint that was checked before the start.
    """

    tensors: int
    bytes: int
    layout_digest: str
    content_digest: str
    seconds: float
    stages: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
