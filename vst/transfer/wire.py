"""How tensors are cut into buckets on the gloo wire; both ends compute it from the same metadata.

A bucket holds whole tensors in the order of the metadata, each at an offset aligned to 64 bytes so that every dtype can
be viewed in place, and is closed by the first tensor that would take it over ``bucket_bytes``. A tensor larger than
that has a bucket of its own. Nothing but the tensors' sizes, the order and ``bucket_bytes`` decides the cut.

A bucket travels as one frame, or, where its one tensor is larger than ``frame_limit``, as several: so the sender never
holds a large tensor whole, and reads its next part while the last one is under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ALIGNMENT = 64
VERSION = 2
"""Both ends must cut alike: another number is another cut, and is refused at the join."""

LEAST_FRAME = 4 << 20
"""Bytes; buckets of a few bytes must not cut tensors into as many broadcasts."""


@dataclass(frozen=True)
class Bucket:
    """The tensors from ``first`` on, as many as there are ``offsets``, which are bytes into a buffer of ``nbytes``."""

    first: int
    offsets: tuple[int, ...]
    nbytes: int


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def cut(sizes: Sequence[int], bucket_bytes: int) -> Iterator[Bucket]:
    """Cut tensors of ``sizes`` bytes into buckets of about ``bucket_bytes``; ValueError if that is not positive."""
    if bucket_bytes <= 0:
        raise ValueError(f"bucket_bytes must be positive, got {bucket_bytes}")
    first, used = 0, 0
    offsets: list[int] = []
    for index, size in enumerate(sizes):
        if offsets and used + aligned(size) > bucket_bytes:
            yield Bucket(first, tuple(offsets), used)
            first, offsets, used = index, [], 0
        offsets.append(used)
        used += aligned(size)
    if offsets:
        yield Bucket(first, tuple(offsets), used)


def frame_limit(bucket_bytes: int) -> int:
    """The most bytes that travel at once."""
    return aligned(max(bucket_bytes, LEAST_FRAME))


def frames(bucket: Bucket, bucket_bytes: int) -> Iterator[tuple[int, int]]:
    """Where each frame of a bucket begins and ends in its bytes; none for a bucket of empty tensors."""
    limit = frame_limit(bucket_bytes)
    for begin in range(0, bucket.nbytes, limit):
        yield begin, min(begin + limit, bucket.nbytes)
