"""Reading tensor bytes into buffers of the caller, in full or not at all."""

from __future__ import annotations

import os
from collections import OrderedDict
from types import TracebackType

from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.checkpoint.regular import describe, open_fd, read_at, read_vector
from vst.errors import VerificationError

MAX_OPEN_SHARDS = 16


class TensorReader:
    """Positioned reads of the tensors of a manifest; holds no data and at most ``max_open`` descriptors.

    A context manager, for one thread at a time. Every error is a ``VerificationError`` that names shard and tensor.
    """

    def __init__(self, manifest: Manifest, max_open: int = MAX_OPEN_SHARDS) -> None:
        self._manifest = manifest
        self._max_open = max(1, max_open)
        self._open: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all descriptors; the reader opens them again when it is used again."""
        while self._open:
            os.close(self._open.popitem()[1])

    def read_into(self, entry: TensorEntry, buffer: memoryview) -> None:
        """Fills the contiguous ``buffer`` of exactly ``entry.nbytes`` bytes with the bytes of the tensor."""
        if buffer.nbytes != entry.nbytes:
            raise VerificationError(f"tensor {entry.name!r} has {entry.nbytes} bytes, the buffer has {buffer.nbytes}")
        self.read_range(entry, 0, buffer)

    def read_range(self, entry: TensorEntry, start: int, buffer: memoryview) -> None:
        """Fills ``buffer`` with the bytes of the tensor from its byte ``start`` on."""
        if start < 0 or start + buffer.nbytes > entry.nbytes:
            raise VerificationError(
                f"tensor {entry.name!r} has {entry.nbytes} bytes, asked for {buffer.nbytes} from byte {start}"
            )
        if buffer.nbytes == 0:
            return
        try:
            done = read_at(self._descriptor(entry.shard), buffer.cast("B"), entry.offset + start)
        except OSError as error:
            raise VerificationError(f"{self._where(entry)} cannot be read: {describe(error)}") from error
        if done != buffer.nbytes:
            raise VerificationError(
                f"{self._where(entry)} ended early: found {done} bytes from byte {start}, expected {buffer.nbytes}"
            )

    def read_run(self, entry: TensorEntry, start: int, buffers: list[memoryview]) -> None:
        """Fills ``buffers``, at most 1024, with what lies in the shard from byte ``start`` of the tensor on.

        For neighbours in a file, which go to places that are none: one read for all of them.
        """
        wanted = sum(len(buffer) for buffer in buffers)
        try:
            done = read_vector(self._descriptor(entry.shard), buffers, entry.offset + start)
        except OSError as error:
            raise VerificationError(f"{self._where(entry)} cannot be read: {describe(error)}") from error
        if done != wanted:
            raise VerificationError(
                f"{self._where(entry)} ended early: found {done} bytes from byte {start}, expected {wanted} in a row"
            )

    def _where(self, entry: TensorEntry) -> str:
        return f"{self._manifest.shard_path(entry.shard)}: tensor {entry.name!r}"

    def _descriptor(self, shard: str) -> int:
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        while len(self._open) >= self._max_open:
            os.close(self._open.popitem(last=False)[1])
        fd = open_fd(self._manifest.shard_path(shard))
        self._open[shard] = fd
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return fd
