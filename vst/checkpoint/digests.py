"""Digesting the bytes of a checkpoint: SHA-256 of every tensor and every shard in one pass over each file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from vst.checkpoint.canonical import PREFIX
from vst.checkpoint.canonical import combine_content_digest as combine_content_digest
from vst.checkpoint.canonical import tensor_digest as tensor_digest
from vst.checkpoint.digest_cache import DigestCache as DigestCache
from vst.checkpoint.digest_cache import ShardDigests
from vst.checkpoint.manifest import Manifest, ShardEntry, TensorEntry
from vst.checkpoint.regular import describe, open_regular, read_at
from vst.checkpoint.stability import FileIdentity, identity_of
from vst.errors import VerificationError

CHUNK_BYTES = 4 << 20
MAX_WORKERS = 8

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes ``begin`` to ``end`` of a file, which are one tensor."""

    name: str
    begin: int
    end: int


def with_digests(
    manifest: Manifest, cache: DigestCache | None, workers: int | None = None, progress: Progress | None = None
) -> Manifest:
    """The manifest with digests of all tensors and shards; a shard is read once, or not at all if ``cache`` knows it.

    Threads work on different shards (``workers``, by default one per core, at most 8), each with a buffer of 4 MiB.
    ``progress`` gets the number of bytes done since its last call, from one thread at a time. Raises
    ``VerificationError`` naming the file if it is not as long as the manifest says or changed while it was read.
    """
    count = max(1, min(workers or os.cpu_count() or 1, MAX_WORKERS, len(manifest.shards)))
    by_shard = _tensors_by_shard(manifest)
    report = _serialised(progress)
    with ThreadPoolExecutor(count, thread_name_prefix="digest") as pool:
        jobs = [pool.submit(_shard_digests, manifest, shard, by_shard, cache, report) for shard in manifest.shards]
        try:
            results = {shard.name: job.result() for shard, job in zip(manifest.shards, jobs, strict=True)}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return replace(
        manifest,
        shards=tuple(replace(shard, digest=results[shard.name].shard) for shard in manifest.shards),
        tensors=tuple(replace(entry, digest=results[entry.shard].tensors[entry.name]) for entry in manifest.tensors),
    )


def _tensors_by_shard(manifest: Manifest) -> dict[str, list[TensorEntry]]:
    found: dict[str, list[TensorEntry]] = {shard.name: [] for shard in manifest.shards}
    for entry in manifest.tensors:
        found[entry.shard].append(entry)
    return found


def _serialised(progress: Progress | None) -> Progress:
    lock = Lock()

    def report(count: int) -> None:
        if progress is not None:
            with lock:
                progress(count)

    return report


def _shard_digests(
    manifest: Manifest,
    shard: ShardEntry,
    by_shard: dict[str, list[TensorEntry]],
    cache: DigestCache | None,
    report: Progress,
) -> ShardDigests:
    path = Path(os.path.realpath(manifest.shard_path(shard.name)))
    entries = by_shard[shard.name]
    try:
        with open_regular(path) as fd:
            before = identity_of(os.fstat(fd))
            _same_size(path, before, shard)
            known = cache.load(path, before, entries) if cache else None
            if known is not None:
                report(shard.nbytes)
                return known
            found = digest_spans(fd, path, before.size, entries, report)
            _unchanged(path, before, identity_of(os.fstat(fd)), identity_of(os.stat(path)))
    except OSError as error:
        raise VerificationError(f"{path}: cannot be read: {describe(error)}") from error
    if cache:
        cache.store(path, before, entries, found)
    return found


def _same_size(path: Path, found: FileIdentity, shard: ShardEntry) -> None:
    if found.size != shard.nbytes:
        raise VerificationError(f"{path}: {found.size} bytes, the manifest says {shard.nbytes}: it changed since")


def _unchanged(path: Path, before: FileIdentity, *after: FileIdentity) -> None:
    if any(identity != before for identity in after):
        raise VerificationError(f"{path}: changed while it was read, nothing is known about its content")


def digest_spans(fd: int, path: Path, size: int, entries: Sequence[TensorEntry], report: Progress) -> ShardDigests:
    """Digests of the first ``size`` bytes of ``fd`` and of the spans of ``entries`` in it, which must not overlap."""
    spans = [_Span(entry.name, entry.offset, entry.offset + entry.nbytes) for entry in entries]
    hasher = _SpanHasher(spans)
    whole = hashlib.sha256()
    buffer = memoryview(bytearray(min(CHUNK_BYTES, max(size, 1))))
    for position in range(0, size, CHUNK_BYTES):
        view = buffer[: min(CHUNK_BYTES, size - position)]
        done = read_at(fd, view, position)
        if done != len(view):
            raise VerificationError(f"{path}: ended at byte {position + done}, expected {size}")
        whole.update(view)
        hasher.feed(view, position)
        report(done)
    return ShardDigests(PREFIX + whole.hexdigest(), hasher.finish())


class _SpanHasher:
    """Feeds consecutive chunks of a file to one SHA-256 per span."""

    def __init__(self, spans: list[_Span]) -> None:
        self._waiting = sorted(spans, key=lambda span: (span.begin, span.end), reverse=True)
        self._current = hashlib.sha256()
        self._done: dict[str, str] = {}

    def feed(self, view: memoryview, position: int) -> None:
        end = position + len(view)
        while self._waiting and self._waiting[-1].begin < end:
            span = self._waiting[-1]
            self._current.update(view[max(span.begin - position, 0) : span.end - position])
            if span.end > end:
                return
            self._close()

    def finish(self) -> dict[str, str]:
        """The digests by tensor name; what is still waiting are empty tensors at the end of the file."""
        while self._waiting:
            self._close()
        return self._done

    def _close(self) -> None:
        self._done[self._waiting.pop().name] = PREFIX + self._current.hexdigest()
        self._current = hashlib.sha256()
