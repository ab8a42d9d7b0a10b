"""A worker's side of a bucket's way: the next ones are received while one is loaded.

Buffers are used again, because new ones cost more in page faults than the bytes take to arrive. But vLLM's layerwise
reload keeps tensors until their layer is complete, and they are views of a buffer: one that anything still looks at is
left to that, and another is made. So there come to be as many as were looked at at the same time.
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from queue import Empty, Queue
from typing import Any

import torch

from vst.transfer.affinity import like_parent
from vst.transfer.footprint import RECEIVE_AHEAD
from vst.transfer.gloo_group import Group, receive
from vst.transfer.ring import slab
from vst.transfer.wire import Bucket

UNUSED = 2
"""References to a slab that only the pool holds: the pool's own, and the one of the call that counts."""


class Buffers:
    """Hands out buffers of bytes; takes back, without being asked, those that nothing looks at any more.

    ``torch.frombuffer`` holds a reference to the slab as long as a tensor or a view of one lives, so the slab's own
    count of references says whether it is free.
    """

    def __init__(self) -> None:
        self._slabs: list[mmap.mmap] = []

    def __len__(self) -> int:
        return len(self._slabs)

    def take(self, nbytes: int) -> torch.Tensor:
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        free = [index for index in range(len(self._slabs)) if sys.getrefcount(self._slabs[index]) == UNUSED]
        fitting = [index for index in free if len(self._slabs[index]) >= nbytes]
        if fitting:
            best = min(fitting, key=lambda index: len(self._slabs[index]))
            return torch.frombuffer(self._slabs[best], dtype=torch.uint8, count=nbytes)
        if free:
            # A larger one takes its place: what the small one served, that will serve too.
            del self._slabs[free[-1]]
        self._slabs.append(slab(nbytes))
        return torch.frombuffer(self._slabs[-1], dtype=torch.uint8, count=nbytes)


class _Ended(Exception):
    """The receiving thread's failure, carried to the loading one."""


def arriving(group: Group, buckets: Iterable[Bucket], bucket_bytes: int) -> Iterator[tuple[Bucket, torch.Tensor]]:
    """Each bucket with its bytes, in order; the next ones arrive meanwhile. Errors of the group are raised in turn.

    A consumer that stops early leaves a thread that ends with the broadcast it waits in.
    """
    # One that arrives is in the thread's hands, the others wait here.
    ready: Queue[Any] = Queue(RECEIVE_AHEAD - 1)
    stopped = threading.Event()
    todo = list(buckets)
    with like_parent():
        threading.Thread(target=_receive, args=(group, todo, bucket_bytes, ready, stopped), daemon=True).start()
    try:
        for bucket in todo:
            got = ready.get()
            if isinstance(got, _Ended):
                raise got.args[0]
            yield bucket, got
            del got
    finally:
        stopped.set()
        # The thread may wait for room.
        with suppress(Empty):
            ready.get_nowait()


def _receive(group: Group, buckets: list[Bucket], bucket_bytes: int, ready: Queue[Any], stopped: Any) -> None:
    buffers = Buffers()
    try:
        for bucket in buckets:
            if stopped.is_set():
                return
            buffer = buffers.take(bucket.nbytes)
            receive(group, buffer, bucket, bucket_bytes)
            ready.put(buffer)
            del buffer
    except BaseException as error:  # noqa: B036 - whatever it is, the loading thread must not wait for ever
        ready.put(_Ended(error))
