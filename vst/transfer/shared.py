"""Both ends of a push through shared memory: a bucket is read into its place once and loaded from where it lies.

The group carries two numbers a bucket, its place and its ticket, instead of its bytes. The publisher may use a place
again when every worker has given its ticket back, which happens by itself when the last view of the bucket is gone:
vLLM's layerwise reload keeps tensors until their layer is complete.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vst.errors import TransportError, VerificationError
from vst.transfer.footprint import shared_footprint
from vst.transfer.frames import Frame
from vst.transfer.regions import Regions, rounded
from vst.transfer.shared_file import Address, SharedFile, create, opened
from vst.transfer.wire import cut

POLL_S = 0.0001
SPARE_TICKETS = 64


@dataclass(frozen=True, slots=True)
class Taken:
    """A bucket's place, from when it is filled until all workers have given it back."""

    offset: int
    nbytes: int
    ticket: int


class SharedSpace:
    """The publisher's end: places for buckets, ``ring`` of them and a largest one unless the workers wait for more.

    Workers that keep buckets until a layer is complete may need more than the limit to go on; they get it. Up to two
    whole layouts fit: what the push before left in use, and this one. Serves one thread.
    """

    def __init__(self, sizes: Sequence[int], bucket_bytes: int, ring: int, workers: int, timeout_s: float) -> None:
        limit = shared_footprint(sizes, bucket_bytes, ring).sender
        buckets = [bucket.nbytes for bucket in cut(sizes, bucket_bytes)]
        total = 2 * sum(map(rounded, buckets)) + limit
        self._file: SharedFile = create(workers, 2 * len(buckets) + SPARE_TICKETS, total)
        self._data = self._file.data()
        self._regions = Regions(total)
        self._tickets = list(range(self._file.address.tickets))
        self._taken: dict[int, Taken] = {}
        self.ahead = ring
        self._limit, self._timeout_s = limit, timeout_s
        self._announced = 0
        self._open: Taken | None = None

    @property
    def address(self) -> Address:
        return self._file.address

    @property
    def used(self) -> int:
        """Bytes of the places that are taken."""
        return sum(one.nbytes for one in self._taken.values())

    def expect_room(self, sizes: Sequence[int], bucket_bytes: int) -> None:
        """VerificationError where a layout cannot be carried beside what is still in use."""
        self._reclaim()
        wanted, room = sum(rounded(one.nbytes) for one in cut(sizes, bucket_bytes)), self.address.nbytes - self.used
        if wanted > room:
            raise VerificationError(
                f"the push needs {wanted} bytes of shared memory, {room} of {self.address.nbytes} are not in use: "
                "use transfer=gloo; nothing was sent"
            )

    def place(self, frame: Frame, wait: bool) -> torch.Tensor | None:
        """Where the bytes of ``frame`` go; None if there is no room now, unless ``wait``.

        The first frame of a bucket takes the whole bucket's place. Raises TransportError when none came free in time.
        """
        if frame.whole == 0:
            return self._data[:0]
        if frame.begin == 0:
            self._open = self._take(frame.whole, wait)
        if self._open is None:
            return None
        begin = self._open.offset + frame.begin
        return self._data[begin : begin + frame.nbytes]

    def announcement(self, frame: Frame, data: torch.Tensor) -> torch.Tensor:
        """What the workers are told about the bucket that ends with ``frame``, whose bytes are in ``data``."""
        taken = self._taken[data.storage_offset() - frame.begin]
        self._announced += 1
        return torch.tensor([taken.offset, taken.ticket], dtype=torch.int64)

    def sent(self, frame: Frame) -> None:
        """A place comes free when the workers say so, not when it was sent."""

    def _take(self, nbytes: int, wait: bool) -> Taken | None:
        until = time.monotonic() + self._timeout_s
        while True:
            self._reclaim()
            starved = wait and all(self._file.count(one) >= self._announced for one in range(self.address.workers))
            if not self._taken or self.used + nbytes <= self._limit or starved:
                return self._taking(nbytes)
            if not wait:
                return None
            if time.monotonic() > until:
                raise TransportError(
                    f"the workers gave no shared memory back for {self._timeout_s:g} s: {self.used} bytes in "
                    f"{len(self._taken)} buckets are in use, {nbytes} more are wanted"
                )
            time.sleep(POLL_S)

    def _taking(self, nbytes: int) -> Taken:
        offset = self._regions.take(nbytes)
        if offset is None or not self._tickets:
            raise TransportError(f"{self.used} of {self.address.nbytes} bytes of shared memory stay in use")
        taken = self._taken[offset] = Taken(offset, nbytes, self._tickets.pop())
        for worker in range(self.address.workers):
            self._file.mark(worker, taken.ticket, False)
        return taken

    def _reclaim(self) -> None:
        workers = range(self.address.workers)
        for taken in list(self._taken.values()):
            if all(self._file.given_back(worker, taken.ticket) for worker in workers):
                del self._taken[taken.offset]
                self._tickets.append(taken.ticket)
                self._regions.give(taken.offset, taken.nbytes)


class SharedBuckets:
    """A worker's end: the tensors of bytes that lie in the publisher's memory."""

    def __init__(self, address: dict[str, Any], worker: int) -> None:
        self._file = opened(Address(**address))
        self._worker = worker
        self._loaded = 0

    def bucket(self, announcement: torch.Tensor, nbytes: int) -> torch.Tensor:
        """The announced bucket; its ticket is given back when the last tensor that looks at it is gone."""
        offset, ticket = (int(number) for number in announcement)
        begin = self._file.address.data + offset
        look = memoryview(self._file.words)[begin : begin + nbytes]
        weakref.finalize(look, self._file.mark, self._worker, ticket, True).atexit = False
        return torch.frombuffer(look, dtype=torch.uint8)

    def loaded(self) -> None:
        """The bucket that came last was handed to the model."""
        self._loaded += 1
        self._file.set_count(self._worker, self._loaded)
