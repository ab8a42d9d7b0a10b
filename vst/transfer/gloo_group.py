"""The gloo group and the bytes on its wire, without vLLM: what a worker of any kind shares with the publisher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from vst.transfer.wire import Bucket, frames


class UpdateInfo(Protocol):
    """Names, torch dtype names and shapes of the tensors of one update, in the order in which they are sent."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def dtype_names(self) -> Sequence[str]: ...

    @property
    def shapes(self) -> Sequence[Sequence[int]]: ...


class Group:
    """A gloo process group of its own, which needs no global one; broadcasts come from rank 0."""

    def __init__(self, store: Any, rank: int, size: int, address: str, timeout_s: float) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=timeout_s)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        self._store = store
        self._group = dist.ProcessGroupGloo(dist.PrefixStore("vst", store), rank, size, options)

    def broadcast(self, buffer: torch.Tensor) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        self._group.broadcast([buffer], options).wait()


def open_store(host: str, port: int, size: int, master: bool, timeout_s: float) -> Any:
    return dist.TCPStore(
        host, port, size, is_master=master, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
    )


def send(group: Group, buffer: torch.Tensor, bucket: Bucket, bucket_bytes: int) -> None:
    """Broadcast a bucket frame by frame; a worker calls the same to receive it into ``buffer``."""
    for begin, end in frames(bucket, bucket_bytes):
        group.broadcast(buffer[begin:end])


receive = send
"""A broadcast has one call for both ends."""


def views(buffer: torch.Tensor, bucket: Bucket, info: UpdateInfo) -> Iterator[tuple[str, torch.Tensor]]:
    """The bucket's tensors as views of ``buffer``; it must not be used again, layerwise reload may keep them."""
    for index, offset in enumerate(bucket.offsets, bucket.first):
        dtype = getattr(torch, info.dtype_names[index])
        shape = list(info.shapes[index])
        nbytes = _numel(shape) * dtype.itemsize
        yield info.names[index], buffer[offset : offset + nbytes].view(dtype).view(shape)


def sizes(info: UpdateInfo) -> list[int]:
    """The bytes of each tensor of the update."""
    return [
        _numel(shape) * getattr(torch, dtype).itemsize
        for shape, dtype in zip(info.shapes, info.dtype_names, strict=True)
    ]


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
