"""Remembering digests of shards between runs, as long as the file is the same for all that ``stat`` can tell."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vst.checkpoint.manifest import TensorEntry
from vst.checkpoint.regular import describe, read_small
from vst.checkpoint.stability import FileIdentity
from vst.checkpoint.strict_json import parse_object
from vst.errors import VerificationError

FORMAT = "vst-digests/2"
MAX_ENTRY_BYTES = 1 << 30
SETTLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ShardDigests:
    """``sha256:<hex>`` of a whole shard, None if it was not asked for, and ``blake3:<hex>`` of its tensors by name."""

    shard: str | None
    tensors: dict[str, str]


class DigestCache:
    """One JSON file per shard in ``directory``, keyed by resolved path, size, both times and inode of the shard.

    An entry that is damaged or describes another file is ignored and overwritten. A shard that was changed less than
    ``settle_seconds`` ago is not remembered: a second change within the clock tick of its file system would go unseen.
    ``problems`` says which digests could not be remembered; a full disk must not stop an audit.
    """

    def __init__(self, directory: Path, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._directory = directory
        self._settle_ns = int(settle_seconds * 1e9)
        self.problems: list[str] = []

    def load(
        self, path: Path, identity: FileIdentity, entries: Sequence[TensorEntry], shard_digest: bool
    ) -> ShardDigests | None:
        """The digests of the shard at ``path`` if they are known for exactly this file and these tensors.

        With ``shard_digest`` an entry without the digest of the whole file does not do.
        """
        try:
            content = parse_object(read_small(self._entry(path), MAX_ENTRY_BYTES))
        except (VerificationError, ValueError):
            return None
        if content.pop("check", None) != _check(content) or content.get("key") != _key(path, identity, entries):
            return None
        if shard_digest and content["shard"] is None:
            return None
        return ShardDigests(content["shard"] if shard_digest else None, content["tensors"])

    def store(self, path: Path, identity: FileIdentity, entries: Sequence[TensorEntry], found: ShardDigests) -> None:
        """Remembers the digests, or says in ``problems`` why they cannot be remembered."""
        if time.time_ns() - max(identity.ctime_ns, identity.mtime_ns) < self._settle_ns:
            return
        content: dict[str, Any] = {"key": _key(path, identity, entries), "shard": found.shard, "tensors": found.tensors}
        content["check"] = _check(content)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            _replace(self._entry(path), json.dumps(content))
        except OSError as error:
            self.problems.append(f"{path}: its digests cannot be remembered in {self._directory}: {describe(error)}")

    def _entry(self, path: Path) -> Path:
        return self._directory / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"


def _key(path: Path, identity: FileIdentity, entries: Sequence[TensorEntry]) -> dict[str, Any]:
    layout = json.dumps(sorted([entry.name, entry.offset, entry.nbytes] for entry in entries))
    spans = hashlib.sha256(layout.encode("ascii")).hexdigest()
    return {"format": FORMAT, "path": os.fsdecode(path), "spans": spans, **asdict(identity)}


def _check(content: dict[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def _replace(path: Path, text: str) -> None:
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(fd, "w", encoding="ascii") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
