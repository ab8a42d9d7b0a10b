"""How tensors are cut into buckets on the gloo wire; both ends compute it from the same metadata.

A bucket holds whole tensors in the order of the metadata, each at an offset aligned to 64 bytes so that every dtype can
be viewed in place, and is closed by the first tensor that would take it over ``bucket_bytes``. A tensor larger than
that has a bucket of its own. Nothing but the tensors' sizes, the order and ``bucket_bytes`` decides the cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ALIGNMENT = 64


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
