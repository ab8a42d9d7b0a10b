"""Check ``files.finite``: no NaN and no infinity in any floating-point tensor, found by bit patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.checkpoint.reader import TensorReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Pattern:
    """Elements of ``width`` bytes are not finite where ``bits & mask == mask``, or ``bits == exact`` if given."""

    width: int
    mask: int = 0
    exact: int | None = None


PATTERNS: dict[str, Pattern] = {
    "F64": Pattern(8, 0x7FF0000000000000),
    "F32": Pattern(4, 0x7F800000),
    "C64": Pattern(4, 0x7F800000),
    "F16": Pattern(2, 0x7C00),
    "BF16": Pattern(2, 0x7F80),
    "F8_E5M2": Pattern(1, 0x7C),
    "F8_E4M3": Pattern(1, 0x7F),
    "F8_E8M0": Pattern(1, 0xFF),
    "F8_E4M3FNUZ": Pattern(1, exact=0x80),
    "F8_E5M2FNUZ": Pattern(1, exact=0x80),
}
"""The other floating types, F4 and F6, have neither NaN nor infinity (OCP Microscaling formats 1.0)."""


def not_finite(manifest: Manifest) -> list[str]:
    """One message for each tensor that holds a NaN or an infinity, with the index of the first; reads 4 MiB at a time.

    Raises ``VerificationError`` if a tensor cannot be read whole.
    """
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with TensorReader(manifest) as reader:
        found = [_first_bad(reader, entry, buffer) for entry in _in_file_order(manifest)]
    return [message for message in found if message]


def _in_file_order(manifest: Manifest) -> list[TensorEntry]:
    scanned = [entry for entry in manifest.tensors if entry.dtype in PATTERNS]
    return sorted(scanned, key=lambda entry: (entry.shard, entry.offset))


def _first_bad(reader: TensorReader, entry: TensorEntry, buffer: memoryview) -> str | None:
    pattern = PATTERNS[entry.dtype]
    for start in range(0, entry.nbytes, CHUNK_BYTES):
        view = buffer[: min(CHUNK_BYTES, entry.nbytes - start)]
        reader.read_range(entry, start, view)
        position = _first(view, pattern)
        if position is not None:
            return _describe(entry, start // pattern.width + position)
    return None


def _first(view: memoryview, pattern: Pattern) -> int | None:
    import numpy as np

    bits = np.frombuffer(view, np.dtype(f"<u{pattern.width}"))
    bad = _bad(bits, pattern)
    return int(bad.argmax()) if bad is not None else None


def _bad(bits: NDArray[np.unsignedinteger], pattern: Pattern) -> NDArray[np.bool_] | None:
    if pattern.exact is not None:
        bad = bits == pattern.exact
        return bad if bad.any() else None
    masked = bits & bits.dtype.type(pattern.mask)
    # The largest masked value decides for the whole chunk, which is faster than comparing each element.
    return masked == pattern.mask if masked.max() == pattern.mask else None


def _describe(entry: TensorEntry, flat: int) -> str:
    if entry.dtype == "C64":
        flat //= 2
    index: list[int] = []
    rest = flat
    for size in reversed(entry.shape):
        rest, position = divmod(rest, size)
        index.insert(0, position)
    return f"{entry.dtype} tensor {entry.name!r} in {entry.shard!r} is not finite, first at index {index}"
