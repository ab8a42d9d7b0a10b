"""Digesting the bytes of a checkpoint: BLAKE3 of every tensor and, where it is asked for, SHA-256 of every shard.

Each byte is read once. Tensors are digested side by side, and a very large one by all cores. The SHA-256 of a shard can
only be taken from its first byte to its last: then a thread goes through the shard with a second one beside it.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from vst.checkpoint.canonical import combine_content_digest as combine_content_digest
from vst.checkpoint.canonical import tensor_digest as tensor_digest
from vst.checkpoint.digest_cache import DigestCache as DigestCache
from vst.checkpoint.digest_cache import ShardDigests
from vst.checkpoint.hashing import Buffers, Progress, digest_stretch
from vst.checkpoint.manifest import Manifest, ShardEntry, TensorEntry
from vst.checkpoint.regular import describe, open_regular
from vst.checkpoint.stability import FileIdentity, identity_of
from vst.checkpoint.stretches import Cutting, Stretch, cutting, stretches, whole_shard
from vst.errors import VerificationError

MAX_WORKERS = 8


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard as it was found: the file, its tensors, and its digests if the cache knows them."""

    name: str
    path: Path
    identity: FileIdentity
    tensors: list[TensorEntry]
    known: ShardDigests | None


def with_digests(
    manifest: Manifest,
    cache: DigestCache | None,
    workers: int | None = None,
    progress: Progress | None = None,
    shard_digests: bool = False,
) -> Manifest:
    """The manifest with the digests of all tensors; a shard is read once, or not at all if ``cache`` knows it.

    ``shard_digests`` asks for the SHA-256 of every shard beside them, without which the shards have no digest.
    ``workers`` threads share the work, by default one per core, at most 8, each with two buffers of some MiB.
    ``progress`` gets the number of bytes done since its last call, from one thread at a time. Raises
    ``VerificationError`` naming the file if it is not as long as the manifest says or changed while it was read.
    """
    count = max(1, min(workers or os.cpu_count() or 1, MAX_WORKERS))
    by_shard = _tensors_by_shard(manifest)
    shards = [_look(manifest, shard, by_shard[shard.name], cache, shard_digests) for shard in manifest.shards]
    results = _digest_all(shards, count, cache, _serialised(progress), shard_digests)
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


def _look(
    manifest: Manifest, shard: ShardEntry, tensors: list[TensorEntry], cache: DigestCache | None, shard_digest: bool
) -> _Shard:
    path = Path(os.path.realpath(manifest.shard_path(shard.name)))
    with open_regular(path) as fd:
        identity = identity_of(os.fstat(fd))
    if identity.size != shard.nbytes:
        raise VerificationError(f"{path}: {identity.size} bytes, the manifest says {shard.nbytes}: it changed since")
    known = cache.load(path, identity, tensors, shard_digest) if cache else None
    return _Shard(shard.name, path, identity, tensors, known)


def _digest_all(
    shards: list[_Shard], count: int, cache: DigestCache | None, report: Progress, shard_digests: bool
) -> dict[str, ShardDigests]:
    how = cutting(sum(shard.identity.size for shard in shards if shard.known is None), count)
    buffers = Buffers()
    jobs: dict[str, list[Future[ShardDigests]]] = {}
    with ThreadPoolExecutor(count, thread_name_prefix="digest") as pool:
        try:
            for shard in shards:
                parts = _parts(shard, how, shard_digests)
                jobs[shard.name] = [pool.submit(_digest, shard, part, buffers, report) for part in parts]
                # What is not read, because it is known or is the header, is done.
                report(shard.identity.size - sum(part.nbytes for part in parts))
            return {shard.name: shard.known or _gather(shard, jobs[shard.name], cache) for shard in shards}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _parts(shard: _Shard, how: Cutting, shard_digest: bool) -> list[Stretch]:
    if shard.known is not None:
        return []
    if shard_digest:
        return [whole_shard(shard.identity.size, shard.tensors)]
    return list(stretches(shard.tensors, how))


def _digest(shard: _Shard, stretch: Stretch, buffers: Buffers, report: Progress) -> ShardDigests:
    try:
        with open_regular(shard.path) as fd:
            _unchanged(shard, os.fstat(fd))
            found = digest_stretch(fd, shard.path, stretch, buffers, report)
            _unchanged(shard, os.fstat(fd), os.stat(shard.path))
    except OSError as error:
        raise VerificationError(f"{shard.path}: cannot be read: {describe(error)}") from error
    return found


def _unchanged(shard: _Shard, *found: os.stat_result) -> None:
    if any(identity_of(one) != shard.identity for one in found):
        raise VerificationError(f"{shard.path}: changed while it was read, nothing is known about its content")


def _gather(shard: _Shard, jobs: list[Future[ShardDigests]], cache: DigestCache | None) -> ShardDigests:
    """The digests of all stretches; each has seen the file as it was found, so nothing changed in between."""
    parts = [job.result() for job in jobs]
    tensors = {name: digest for part in parts for name, digest in part.tensors.items()}
    found = ShardDigests(next((part.shard for part in parts), None), tensors)
    if cache:
        cache.store(shard.path, shard.identity, shard.tensors, found)
    return found
