"""Reading and hashing ahead of the broadcast, over a ring of buffers that is filled again as it is sent.

A frame is filled by one thread, piece by piece: a positioned read straight into its slot, then the hash of what is
there, while it is in the processor's cache. Frames are filled side by side and handed on in their order. What is
hashed is what will be sent, not what a second read would give. The memory is the ring's and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from vst.checkpoint.canonical import BLAKE3, spelled, tensor_hasher
from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.checkpoint.reader import TensorReader
from vst.transfer.frames import Frame, Span, plan_frames
from vst.transfer.prefetch import Prefetch
from vst.transfer.ring import Ring
from vst.transfer.stages import Stopwatch

PIECE_BYTES = 1 << 20
"""What is read and then hashed at once: it stays in the cache of a core in between."""

MAX_VECTOR = 512
MAX_READERS = 16

Part = tuple[Manifest, TensorEntry]


@dataclass
class Filled:
    """A frame whose bytes are in ``data``, with the tensors that begin in it and the digests of those that end."""

    frame: Frame
    data: Any
    digests: list[tuple[TensorEntry, str]] = field(default_factory=list)
    hasher: Any = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Spans that lie one after the other in one shard: one read."""

    spans: tuple[Span, ...]


def pieces(frame: Frame, parts: Sequence[Part]) -> Iterator[Piece]:
    """The reads that fill a frame; neighbours in a file are one, large tensors are several."""
    run: list[Span] = []
    size = 0
    for span in _small(frame):
        if run and (size + span.nbytes > PIECE_BYTES or len(run) >= MAX_VECTOR or not _follows(run[-1], span, parts)):
            yield Piece(tuple(run))
            run, size = [], 0
        run.append(span)
        size += span.nbytes
    if run:
        yield Piece(tuple(run))


def _small(frame: Frame) -> Iterator[Span]:
    for span in frame.spans:
        for at in range(0, max(span.nbytes, 1), PIECE_BYTES):
            yield Span(span.index, span.start + at, span.offset + at, min(PIECE_BYTES, span.nbytes - at))


def _follows(before: Span, after: Span, parts: Sequence[Part]) -> bool:
    (manifest, entry), (other, next_entry) = parts[before.index], parts[after.index]
    end = entry.offset + before.start + before.nbytes
    return manifest is other and entry.shard == next_entry.shard and end == next_entry.offset + after.start


class Pipeline:
    """The frames of one push, filled ahead; iterate once. ``ring`` must hold the largest frame.

    Raises the first error of a read where its frame would have come.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        bucket_bytes: int,
        ring: Ring,
        stopwatch: Stopwatch,
        prefetch: Prefetch | None = None,
    ) -> None:
        self._parts = parts
        self._frames = plan_frames([entry.nbytes for _, entry in parts], bucket_bytes)
        self._ring = ring
        self._watch = stopwatch
        self._prefetch = prefetch
        self._own = threading.local()
        self._readers: list[TensorReader] = []

    def __iter__(self) -> Iterator[Filled]:
        count = min(len(self._ring.slots), max(2, os.cpu_count() or 1), MAX_READERS)
        pool = ThreadPoolExecutor(count, thread_name_prefix="read")
        jobs: deque[tuple[int, Future[Filled]]] = deque()
        try:
            for slot in range(len(self._ring.slots)):
                self._submit(pool, jobs, slot)
            while jobs:
                slot, job = jobs.popleft()
                yield job.result()
                # Only now has the frame been sent, and its slot is free.
                self._submit(pool, jobs, slot, job)
        finally:
            # A read that hangs must not keep the error back that made this end.
            pool.shutdown(wait=False, cancel_futures=True)
            threading.Thread(target=self._close, args=(pool,), daemon=True).start()

    def _close(self, pool: ThreadPoolExecutor) -> None:
        pool.shutdown(wait=True)
        for reader in self._readers:
            reader.close()

    def _submit(
        self, pool: ThreadPoolExecutor, jobs: deque[tuple[int, Future[Filled]]], slot: int, sent: Any = None
    ) -> None:
        frame = next(self._frames, None)
        if frame is None:
            return
        before = jobs[-1][1] if jobs else sent
        jobs.append((slot, pool.submit(self._fill, frame, self._ring.slots[slot], before)))

    def _fill(self, frame: Frame, slot: Any, before: Future[Filled] | None) -> Filled:
        filled = Filled(frame, slot[: frame.nbytes])
        view = memoryview(filled.data.numpy())
        todo = list(pieces(frame, self._parts))
        if self._prefetch is not None and todo:
            manifest, entry = self._parts[todo[0].spans[0].index]
            self._prefetch.reach(manifest.shard_path(entry.shard))
        if not frame.continues:
            for piece in todo:
                self._read(piece, view)
                self._hash(piece, view, filled)
            return filled
        # The digest of a tensor in several frames goes on where the frame before left it; reading need not wait.
        for piece in todo:
            self._read(piece, view)
        filled.hasher = before.result().hasher if before is not None else None
        for piece in todo:
            self._hash(piece, view, filled)
        return filled

    def _read(self, piece: Piece, view: memoryview) -> None:
        first = piece.spans[0]
        manifest, entry = self._parts[first.index]
        buffers = [view[span.offset : span.offset + span.nbytes] for span in piece.spans if span.nbytes]
        if not buffers:
            return
        with self._watch.timed("read", sum(map(len, buffers))):
            self._reader(manifest).read_run(entry, first.start, buffers)

    def _hash(self, piece: Piece, view: memoryview, filled: Filled) -> None:
        with self._watch.timed("hash", sum(span.nbytes for span in piece.spans)):
            for span in piece.spans:
                entry = self._parts[span.index][1]
                if span.start == 0:
                    filled.hasher = tensor_hasher()
                filled.hasher.update(view[span.offset : span.offset + span.nbytes])
                if span.start + span.nbytes == entry.nbytes:
                    filled.digests.append((entry, spelled(BLAKE3, filled.hasher)))

    def _reader(self, manifest: Manifest) -> TensorReader:
        mine: dict[int, TensorReader] | None = getattr(self._own, "readers", None)
        if mine is None:
            mine = self._own.readers = {}
        if id(manifest) not in mine:
            mine[id(manifest)] = TensorReader(manifest)
            self._readers.append(mine[id(manifest)])
        return mine[id(manifest)]
