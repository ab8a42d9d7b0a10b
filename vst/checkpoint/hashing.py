"""Reading a stretch of a shard once, and feeding its bytes to all hashers that want them.

Positioned reads into buffers that are used again, and each piece is hashed while it is in the processor's cache. To
map the file instead takes more processor time, for its page faults, and a file that somebody truncates meanwhile
would kill the process with SIGBUS instead of being told as changed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from vst.checkpoint.canonical import BLAKE3, SHA256, spelled, tensor_hasher
from vst.checkpoint.digest_cache import ShardDigests
from vst.checkpoint.manifest import TensorEntry
from vst.checkpoint.regular import read_at
from vst.checkpoint.stretches import Stretch
from vst.errors import VerificationError

Progress = Callable[[int], None]
Feed = Callable[[memoryview, int], None]
"""Takes the bytes of the file from a position on; called with consecutive pieces."""

Pieces = Iterator[tuple[memoryview, int]]


class Buffers:
    """Memory that is made once and lent again and again: a new buffer costs page faults in every piece."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[memoryview]] = defaultdict(list)

    @contextmanager
    def lent(self, count: int, nbytes: int) -> Iterator[list[memoryview]]:
        """``count`` buffers of ``nbytes``, for the block."""
        free = self._free[nbytes]
        held = []
        for _ in range(count):
            try:
                held.append(free.pop())
            except IndexError:
                held.append(memoryview(bytearray(nbytes)))
        yield held
        free.extend(held)


def digest_stretch(fd: int, path: Path, stretch: Stretch, buffers: Buffers, report: Progress) -> ShardDigests:
    """Digests of the tensors in ``stretch``, and of the whole file if the stretch is one.

    Each byte is read once. The SHA-256 of a whole file is taken in a second thread beside the digests of its tensors,
    the hash of a tensor that several threads share beside the next read.
    """
    spans = SpanHasher(stretch)
    whole = hashlib.sha256()
    with buffers.lent(2, stretch.piece_bytes) as pair:
        pieces = _pieces(fd, path, stretch, pair, report)
        if stretch.whole:
            _both(pieces, spans.feed, lambda view, _: whole.update(view))
        elif stretch.threads > 1:
            _both(pieces, _nothing, spans.feed)
        else:
            for view, position in pieces:
                spans.feed(view, position)
    return ShardDigests(spelled(SHA256, whole) if stretch.whole else None, spans.finish())


def _pieces(fd: int, path: Path, stretch: Stretch, buffers: Sequence[memoryview], report: Progress) -> Pieces:
    """The pieces of a stretch, each valid until the next but one is taken."""
    turns = cycle(buffers)
    for position in range(stretch.begin, stretch.end, stretch.piece_bytes):
        view = next(turns)[: stretch.end - position]
        done = read_at(fd, view, position)
        if done != len(view):
            raise VerificationError(f"{path}: ended at byte {position + done}, expected {stretch.end}")
        yield view, position
        report(done)


def _both(pieces: Pieces, here: Feed, beside: Feed) -> None:
    """Feeds every piece to both, to ``beside`` in another thread, which may be one piece behind."""
    with ThreadPoolExecutor(1, thread_name_prefix="hash") as other:
        running: Future[None] | None = None
        for view, position in pieces:
            if running is not None:
                running.result()
            running = other.submit(beside, view, position)
            here(view, position)
        if running is not None:
            running.result()


def _nothing(view: memoryview, position: int) -> None:
    return None


class SpanHasher:
    """Feeds consecutive pieces of a file to one BLAKE3 per tensor."""

    def __init__(self, stretch: Stretch) -> None:
        self._threads = stretch.threads
        self._waiting: list[TensorEntry] = list(reversed(stretch.tensors))
        self._current = tensor_hasher(self._threads)
        self._done: dict[str, str] = {}

    def feed(self, view: memoryview, position: int) -> None:
        end = position + len(view)
        while self._waiting and self._waiting[-1].offset < end:
            entry = self._waiting[-1]
            last = entry.offset + entry.nbytes
            self._current.update(view[max(entry.offset - position, 0) : last - position])
            if last > end:
                return
            self._close()

    def finish(self) -> dict[str, str]:
        """The digests by tensor name; what is still waiting are empty tensors at the end of the stretch."""
        while self._waiting:
            self._close()
        return self._done

    def _close(self) -> None:
        self._done[self._waiting.pop().name] = spelled(BLAKE3, self._current)
        self._current = tensor_hasher(self._threads)
