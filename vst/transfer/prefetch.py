"""Whole shards fetched ahead, one after the other, where the checkpoint lies on a network file system.

Such a file system is fast when a file is read from its beginning to its end and slow when it is read here and there.
What is fetched goes to the page cache, from which the pipeline reads it again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.checkpoint.regular import open_regular, read_at
from vst.checkpoint.storage import read_mounts, shards_by_mount
from vst.errors import VerificationError

CHUNK_BYTES = 8 << 20
SHARDS_AHEAD = 2
"""Shards that are fetched beyond the one that is read now: the page cache must not lose them before they are needed."""


class Prefetch:
    """Reads ``shards`` in their order, at most ``ahead`` of them beyond the last one that ``reach`` was called for."""

    def __init__(self, shards: Sequence[Path], ahead: int = SHARDS_AHEAD) -> None:
        self._place = {path: index for index, path in enumerate(shards)}
        self._shards = shards
        self._ahead = ahead
        self._reached = 0
        self._stopped = False
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def reach(self, shard: Path) -> None:
        """A tensor of ``shard`` is read now."""
        with self._moved:
            self._reached = max(self._reached, self._place.get(shard, 0))
            self._moved.notify()

    def stop(self) -> None:
        with self._moved:
            self._stopped = True
            self._moved.notify()

    def _run(self) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        for index, path in enumerate(self._shards):
            with self._moved:
                while not self._stopped and index > self._reached + self._ahead:
                    self._moved.wait()
            # What cannot be fetched here is read, and complained about, by the pipeline itself.
            with suppress(OSError, VerificationError):
                self._fetch(path, buffer)

    def _fetch(self, path: Path, buffer: memoryview) -> None:
        with open_regular(path) as fd:
            offset = 0
            while not self._stopped and (count := read_at(fd, buffer, offset)):
                offset += count


def prefetch_for(parts: Sequence[tuple[Manifest, TensorEntry]]) -> Prefetch | None:
    """What fetches the shards of ``parts`` that lie on network file systems, in the order of need; None if none do."""
    mounts = read_mounts()
    remote: set[Path] = set()
    for manifest in {id(manifest): manifest for manifest, _ in parts}.values():
        for mount, names in shards_by_mount(manifest, mounts).items():
            if mount is not None and mount.is_network:
                remote.update(manifest.shard_path(name) for name in names)
    needed = dict.fromkeys((id(manifest), entry.shard) for manifest, entry in parts)
    paths = {id(manifest): manifest for manifest, _ in parts}
    shards = [path for key, name in needed if (path := paths[key].shard_path(name)) in remote]
    return Prefetch(shards) if shards else None
