"""Frames in host memory to tensors on a device, the copies beside whatever the device does (``pipelined``).

Each frame gets device memory of its own, and its tensors are views of it; a tensor of several frames is put together on
the device. The ring's slot is free again when its copy has ended, so the host waits for that copy and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.transfer.dtypes import torch_dtype
from vst.transfer.pipeline import Filled
from vst.transfer.stages import Stopwatch
from vst.transfer.wire import aligned


class Copier:
    """Copies on a side stream of a GPU; on a CPU they are plain copies."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._stream = None if device == "cpu" else torch.cuda.Stream(device)

    def empty(self, nbytes: int) -> Any:
        """Bytes on the device that belong to the consumer's stream."""
        return self._torch.empty(nbytes, dtype=self._torch.uint8, device=self._device)

    def copy(self, target: Any, source: Any) -> Any:
        """Begin to copy; gives what ``wait`` waits for."""
        if self._stream is None:
            target.copy_(source)
            return None
        # The allocator may have handed out memory whose last work on the consumer's stream is still to come.
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))
        with self._torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            target.record_stream(self._stream)
            return self._stream.record_event()

    def order(self, copied: Any) -> None:
        """Have the consumer's stream wait for a copy."""
        if copied is not None:
            self._torch.cuda.current_stream(self._device).wait_event(copied)

    def wait(self, copied: Any) -> None:
        """Return when the copy has ended, and its source may be written again."""
        if copied is not None:
            copied.synchronize()


def staged(
    frames: Iterator[Filled], parts: Sequence[tuple[Manifest, TensorEntry]], device: str, watch: Stopwatch
) -> Iterator[tuple[str, Any]]:
    """The tensors of ``frames`` on ``device`` in their order; each keeps its own memory."""
    copier = Copier(device)
    whole: Any = None
    for filled in frames:
        first = filled.frame.spans[0]
        with watch.timed("stage", sum(span.nbytes for span in filled.frame.spans)):
            if first.start == 0:
                # The first frame of a tensor that has several brings room for all of it.
                whole = copier.empty(max(filled.frame.nbytes, aligned(parts[first.index][1].nbytes)))
            copied = copier.copy(whole[first.start : first.start + filled.frame.nbytes], filled.data)
            copier.wait(copied)
        copier.order(copied)
        for span in filled.frame.spans:
            entry = parts[span.index][1]
            if span.start + span.nbytes == entry.nbytes:
                its = whole[span.offset : span.offset + entry.nbytes]
                yield entry.name, its.view(torch_dtype(entry.dtype)).view(entry.shape)
