"""One push on its way out: its tensors, what books them, the memory that they pass through, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psutil

from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.errors import VerificationError
from vst.transfer.footprint import STAGE_BYTES, Footprint, expect_room, gloo_footprint, nccl_footprint
from vst.transfer.ledger import Ledger
from vst.transfer.pace import Pace
from vst.transfer.pipeline import Filled, Pipeline
from vst.transfer.plan import JoinPlan, PushPlan, Sent
from vst.transfer.prefetch import prefetch_for
from vst.transfer.ring import Ring
from vst.transfer.stages import Stopwatch
from vst.transfer.staging import staged

Part = tuple[Manifest, TensorEntry]
Tell = Callable[[int, int], None]


class Memory:
    """The ring of a publisher, kept from push to push: its pages are there after the first."""

    def __init__(self) -> None:
        self._ring: Ring | None = None

    def ring(self, footprint: Footprint, pinned: bool) -> Ring:
        if self._ring is None or not self._ring.holds(footprint.slots, footprint.slot_bytes, pinned):
            self._ring = None
            self._ring = Ring(footprint.slots, footprint.slot_bytes, pinned)
        return self._ring

    @property
    def bytes(self) -> int:
        return self._ring.total_bytes if self._ring is not None else 0


class Outgoing:
    """The stream of one push, as frames for our own engine or as tensors for vLLM's; either may be taken once.

    VerificationError if there is not the memory for it.
    """

    def __init__(
        self, plan: PushPlan, where: JoinPlan, parts: Sequence[Part], manifest: Manifest, memory: Memory, tell: Tell
    ) -> None:
        self._parts, self._where, self._memory = parts, where, memory
        self.watch = Stopwatch()
        self.ledger = Ledger([entry for _, entry in parts], manifest.layout_digest)
        self._pace = Pace(manifest.total_bytes, plan.rate_limit, tell)
        self._pinned = where.device != "cpu"
        self.footprint = self._footprint([entry.nbytes for _, entry in parts])
        expect_room(self.footprint, self._available(), where.same_host, _device_free(where.device))

    def _footprint(self, sizes: list[int]) -> Footprint:
        where = self._where
        if where.backend != "nccl" and where.bucket_bytes is not None:
            return gloo_footprint(sizes, where.bucket_bytes, where.ring)
        return nccl_footprint(sizes, where.bucket_bytes, where.ring, where.staging == "pipelined")

    def _available(self) -> int:
        """What this process may still take: the machine's, and the ring that it holds already."""
        return int(psutil.virtual_memory().available) + self._memory.bytes

    def frames(self, bucket_bytes: int) -> Iterator[Filled]:
        """Every frame of the push in order, each valid until the next is taken."""
        for filled in self._filled(bucket_bytes):
            begun = time.monotonic()
            yield filled
            self.watch.add("broadcast", begun, time.monotonic() - begun, _tensor_bytes(filled))

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """Every tensor on the publisher's device: one at a time, or through the ring."""
        if self._where.staging == "pipelined":
            tensors = staged(self._filled(STAGE_BYTES), self._parts, self._where.device, self.watch)
        else:
            tensors = self._one_by_one()
        for name, tensor in tensors:
            begun = time.monotonic()
            yield name, tensor
            self.watch.add("broadcast", begun, time.monotonic() - begun, tensor.numel() * tensor.element_size())

    def _filled(self, bucket_bytes: int) -> Iterator[Filled]:
        prefetch = prefetch_for(self._parts)
        ring = self._memory.ring(self.footprint, self._pinned)
        if prefetch is not None:
            prefetch.start()
        try:
            for filled in Pipeline(self._parts, bucket_bytes, ring, self.watch, prefetch):
                for entry, digest in filled.digests:
                    self.ledger.note(entry, digest)
                for span in filled.frame.spans:
                    self._pace.passed(span.nbytes)
                yield filled
        finally:
            if prefetch is not None:
                prefetch.stop()

    def _one_by_one(self) -> Iterator[tuple[str, Any]]:
        from vst.transfer import parts as reading

        for name, tensor in self.ledger.watch(self._read(reading.read(list(self._parts)))):
            nbytes = tensor.numel() * tensor.element_size()
            self._pace.passed(nbytes)
            if self._where.device != "cpu":
                with self.watch.timed("stage", nbytes):
                    tensor = tensor.to(self._where.device)
            yield name, tensor

    def _read(self, pairs: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        while True:
            begun = time.monotonic()
            name, tensor = next(pairs, ("", None))
            if tensor is None:
                return
            self.watch.add("read", begun, time.monotonic() - begun, tensor.numel() * tensor.element_size())
            yield name, tensor

    def close(self) -> Sent:
        """The record of what was sent whole, with its stages and its memory; VerificationError if it was not whole."""
        return replace(self.ledger.close(), stages=self.watch.to_json(), memory=self.footprint.to_json())


def _tensor_bytes(filled: Filled) -> int:
    return sum(span.nbytes for span in filled.frame.spans)


def _device_free(device: str) -> int | None:
    """Bytes that the GPU has free, and those that torch's allocator holds unused; None for a CPU."""
    if device == "cpu":
        return None
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + int(torch.cuda.memory_reserved(device)) - int(torch.cuda.memory_allocated(device))


def expect_layout(manifest: Manifest, layout: Manifest, draft: bool) -> None:
    """VerificationError where a session that joined with ``layout`` is to push another one."""
    if not draft and manifest.layout_digest != layout.layout_digest:
        raise VerificationError("the checkpoint to push has another layout than the one this session joined with")
