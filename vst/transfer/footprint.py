"""How much memory a push takes at both ends, known from the layout before anything has begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vst.errors import VerificationError
from vst.transfer.frames import largest_frame
from vst.transfer.wire import aligned

RECEIVE_AHEAD = 2
"""Buckets that a gloo worker holds beyond the one that it loads: one that has arrived, one that arrives."""

NCCL_BUFFERS = 2
"""Packed buffers of vLLM's NCCL engine at each end; its own default."""

NCCL_BUCKET_BYTES = 1 << 30
STAGE_BYTES = 64 << 20
"""A slot of the ring through which tensors get to a GPU; vLLM's own buffers are too large to be page-locked in fours.
"""


@dataclass(frozen=True)
class Footprint:
    """Bytes beyond the processes' base: the sender's ring of ``slots`` and what it stages, a receiver's buckets.

    ``sender`` is the bound that the publisher's process keeps in host memory, ``device`` that on its GPU, ``receiver``
    that of each worker, without what loading itself takes.
    """

    slots: int
    slot_bytes: int
    largest_tensor: int
    sender: int
    device: int
    receiver: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def gloo_footprint(sizes: Sequence[int], bucket_bytes: int, slots: int) -> Footprint:
    """The sender reads into its ring and sends from there; a worker holds whole buckets."""
    count, frame = largest_frame(sizes, bucket_bytes)
    largest = max(sizes, default=0)
    ring = min(slots, max(count, 1))
    total = sum(map(aligned, sizes))
    receiver = min((1 + RECEIVE_AHEAD) * max(bucket_bytes, aligned(largest)), total)
    return Footprint(ring, frame, largest, ring * frame, 0, receiver)


def nccl_footprint(sizes: Sequence[int], bucket_bytes: int | None, slots: int, pipelined: bool) -> Footprint:
    """vLLM packs tensors until they exceed its buffer, so each buffer is up to one tensor larger; ``NCCL_BUFFERS`` of
    them are under way at each end, and the one that is packed exists twice for a moment.
    """
    size = NCCL_BUCKET_BYTES if bucket_bytes is None else bucket_bytes
    largest, total = max(sizes, default=0), sum(sizes)
    packed = min(size + largest, total)
    device = min((NCCL_BUFFERS + 1) * packed, 2 * total)
    if not pipelined:
        return Footprint(1, largest, largest, largest, device, NCCL_BUFFERS * packed)
    count, frame = largest_frame(sizes, STAGE_BYTES)
    ring = min(slots, max(count, 1))
    return Footprint(ring, frame, largest, ring * frame, device + ring * frame, NCCL_BUFFERS * packed)


def expect_room(footprint: Footprint, available: int, same_host: bool, device_free: int | None = None) -> None:
    """VerificationError if the memory is not there; ``same_host``: the workers take theirs from the same machine."""
    wanted = footprint.sender + (footprint.receiver if same_host else 0)
    if wanted > available:
        whose = "publisher and one worker" if same_host else "publisher"
        raise VerificationError(
            f"the push needs {wanted} bytes of memory ({whose}; {footprint.slots} slots of {footprint.slot_bytes}, "
            f"largest tensor {footprint.largest_tensor}), {available} are available: lower transfer.bucket_bytes or "
            "transfer.ring; nothing was sent"
        )
    if device_free is not None and footprint.device > device_free:
        raise VerificationError(
            f"the push needs {footprint.device} bytes on the publisher's GPU, {device_free} are free: lower "
            "transfer.bucket_bytes; nothing was sent"
        )
