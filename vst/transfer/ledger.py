"""What the publisher sends, written down and checked as it leaves: order, names, dtypes, shapes and bytes.

The transaction record says what left the machine because of this, not because of what was planned. A stream that omits,
repeats, re-orders, re-types or changes a tensor ends in a VerificationError before ``finish`` is sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vst.checkpoint.canonical import combine_content_digest, tensor_digest
from vst.checkpoint.manifest import TensorEntry
from vst.errors import VerificationError
from vst.transfer.dtypes import torch_dtype
from vst.transfer.plan import Sent


class Ledger:
    """The expected tensors of one push, ticked off as they pass."""

    def __init__(self, expected: Sequence[TensorEntry], layout_digest: str) -> None:
        self._expected = expected
        self._layout = layout_digest
        self._sent: list[TensorEntry] = []
        self._begun = time.monotonic()

    @property
    def bytes(self) -> int:
        return sum(entry.nbytes for entry in self._sent)

    def watch(self, pairs: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Pass each (name, CPU tensor) on after it was checked against the plan and hashed."""
        for name, tensor in pairs:
            self._tick(name, tensor)
            yield name, tensor

    def _tick(self, name: str, tensor: Any) -> None:
        self._book(self._expect(name, tensor.dtype, tuple(tensor.shape)), torch_digest(tensor))

    def note(self, entry: TensorEntry, digest: str) -> None:
        """The next tensor of the stream is ``entry``, and the bytes that are sent for it have this digest."""
        self._book(self._expect(entry.name, torch_dtype(entry.dtype), entry.shape), digest)

    def _expect(self, name: str, dtype: Any, shape: tuple[int, ...]) -> TensorEntry:
        position = len(self._sent)
        if position >= len(self._expected):
            raise VerificationError(f"the publisher's stream has {name} after the last of {position} tensors")
        entry = self._expected[position]
        if name != entry.name or dtype != torch_dtype(entry.dtype) or shape != entry.shape:
            raise VerificationError(
                f"the publisher's stream has {name} {dtype} {list(shape)} at position {position}, "
                f"expected {entry.name} {entry.dtype} {list(entry.shape)}"
            )
        return entry

    def _book(self, entry: TensorEntry, digest: str) -> None:
        if entry.digest is not None and digest != entry.digest:
            raise VerificationError(
                f"the bytes read for {entry.name} are not those of the manifest: {digest}, expected {entry.digest}; "
                f"shard {entry.shard} changed after it was audited"
            )
        self._sent.append(replace(entry, digest=digest))

    def close(self) -> Sent:
        """The record of a stream that was sent whole; VerificationError names the first tensor that was not."""
        if len(self._sent) != len(self._expected):
            missing, sent = self._expected[len(self._sent)].name, len(self._sent)
            raise VerificationError(
                f"the publisher's stream ended after {sent} of {len(self._expected)} tensors, before {missing}"
            )
        content = combine_content_digest(self._sent)
        if content is None:
            raise VerificationError("a tensor was sent without being hashed")
        return Sent(
            tensors=len(self._sent),
            bytes=self.bytes,
            layout_digest=self._layout,
            content_digest=content,
            seconds=round(time.monotonic() - self._begun, 6),
        )


def torch_digest(tensor: Any) -> str:
    """``blake3:<hex>`` of a contiguous CPU tensor's bytes."""
    import torch

    flat = tensor.reshape(-1).view(torch.uint8).numpy()
    return tensor_digest(memoryview(flat))
