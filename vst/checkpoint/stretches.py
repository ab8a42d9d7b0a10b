"""How the bytes of a shard are cut into what one thread reads and hashes: a stretch is some whole tensors in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vst.checkpoint.manifest import TensorEntry

PIECE_BYTES = 1 << 20
"""What is read and then hashed at once: it stays in the cache of a core in between."""

STRETCH_BYTES = 32 << 20
SHARES = 8
"""A thread gets at least so many stretches where there is enough to do, that all of them end at about one time."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes ``begin`` to ``end`` of a shard, in which ``tensors`` lie in the order of the file.

    A ``whole`` stretch is all of the file and its SHA-256 is asked for too. ``threads`` hash one tensor together.
    """

    begin: int
    end: int
    tensors: tuple[TensorEntry, ...]
    whole: bool = False
    threads: int = 1

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def piece_bytes(self) -> int:
        return PIECE_BYTES * self.threads


@dataclass(frozen=True, slots=True)
class Cutting:
    """How long a stretch may be, and from which size on a tensor has all ``threads`` for itself."""

    stretch_bytes: int
    wide_bytes: int
    threads: int


def cutting(total_bytes: int, threads: int) -> Cutting:
    """The cutting with which ``threads`` share ``total_bytes`` evenly."""
    share = max(PIECE_BYTES, total_bytes // (SHARES * threads))
    return Cutting(min(STRETCH_BYTES, share), max(STRETCH_BYTES, share), threads)


def whole_shard(nbytes: int, tensors: Sequence[TensorEntry]) -> Stretch:
    """A shard of ``nbytes`` in one stretch: SHA-256 goes from the first byte of a file to its last."""
    return Stretch(0, nbytes, _in_file_order(tensors), whole=True)


def stretches(tensors: Sequence[TensorEntry], how: Cutting) -> Iterator[Stretch]:
    """All ``tensors`` of a shard in stretches; the bytes that are no tensor's are in none."""
    run: list[TensorEntry] = []
    size = 0
    for entry in _in_file_order(tensors):
        if run and size + entry.nbytes > how.stretch_bytes:
            yield _stretch(run, how)
            run, size = [], 0
        run.append(entry)
        size += entry.nbytes
    if run:
        yield _stretch(run, how)


def _stretch(run: list[TensorEntry], how: Cutting) -> Stretch:
    last = run[-1]
    wide = len(run) == 1 and last.nbytes > how.wide_bytes
    return Stretch(run[0].offset, last.offset + last.nbytes, tuple(run), threads=how.threads if wide else 1)


def _in_file_order(tensors: Sequence[TensorEntry]) -> tuple[TensorEntry, ...]:
    return tuple(sorted(tensors, key=lambda entry: (entry.offset, entry.nbytes)))
