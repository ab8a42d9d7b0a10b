"""Noticing that a checkpoint changed while a run was looking at it: check ``files.stable``."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from vst.checkpoint.index import INDEX_NAME
from vst.checkpoint.manifest import Manifest
from vst.checkpoint.regular import describe
from vst.errors import VerificationError
from vst.verdict import Check, Outcome


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What a file is as far as ``stat`` can tell; times in nanoseconds. No program can set ``ctime_ns`` back."""

    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int


def identity_of(found: os.stat_result) -> FileIdentity:
    """The identity in a result of ``stat``."""
    return FileIdentity(found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


def identities(source: Path | Manifest) -> dict[str, FileIdentity]:
    """The identity of each file by name, links followed.

    Of a manifest: its shards, the files that it digests and the index, where one that vanished is left out. Of a
    directory: its regular files. Raises ``VerificationError`` if the directory itself cannot be read.
    """
    directory = source.path if isinstance(source, Manifest) else source
    found = {name: _identity(directory / name) for name in _names(source)}
    return {name: identity for name, identity in found.items() if identity is not None}


def _names(source: Path | Manifest) -> list[str]:
    if isinstance(source, Manifest):
        return sorted([INDEX_NAME, *source.files, *(shard.name for shard in source.shards)])
    try:
        return sorted(os.listdir(source))
    except OSError as error:
        raise VerificationError(f"{source}: not a readable directory: {describe(error)}") from error


def _identity(path: Path) -> FileIdentity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return identity_of(found) if stat.S_ISREG(found.st_mode) else None


def changed(before: dict[str, FileIdentity], after: dict[str, FileIdentity]) -> list[str]:
    """The names that were changed, removed or added between two calls of ``identities``, sorted."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def stable_check(before: dict[str, FileIdentity], after: dict[str, FileIdentity]) -> Check:
    """Check ``files.stable``: ``fail`` with the names of the files that are not what they were, ``pass`` otherwise."""
    names = changed(before, after)
    observed = {"files": len(before), "changed": names}
    if not names:
        return Check("files.stable", Outcome.PASS, observed=observed, expected="no file changed during the run")
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    reason = f"changed during the run: {shown}; what was verified may not be what was sent, start again"
    return Check("files.stable", Outcome.FAIL, observed, "no file changed during the run", reason=reason)
