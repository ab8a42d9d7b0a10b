"""What vLLM's NCCL engine can pack: it lays tensors byte to byte, and cannot look at one whose place is not a multiple
of its element's size (0.28 to 0.33: ``unpack_tensor`` views a slice of bytes as its dtype, which torch then refuses).

So a layout with an odd number of bytes before a wider dtype is sent tensor by tensor instead, for which NCCL itself
must know each dtype.
"""

from __future__ import annotations

from collections.abc import Iterable

from vst.errors import VerificationError
from vst.transfer.footprint import NCCL_BUCKET_BYTES

Described = tuple[str, str, int, int]
"""Name, torch dtype, bytes, bytes of an element."""

SENT_ALONE = frozenset(
    ("int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn"),
)
"""What ``ncclDataTypeEnum.from_torch`` knows, by torch's names (0.28 to 0.33)."""


def misplaced(tensors: Iterable[Described], bucket_bytes: int | None) -> str | None:
    """The first tensor that would be packed at a place that its dtype cannot be looked at from; None if none is.

    Packs as vLLM does: a buffer is closed by the tensor that takes it over its size.
    """
    limit = NCCL_BUCKET_BYTES if bucket_bytes is None else bucket_bytes
    place = 0
    for name, _, nbytes, itemsize in tensors:
        if nbytes and place % itemsize:
            return name
        place += nbytes
        if place > limit:
            place = 0
    return None


def packable(tensors: list[Described], bucket_bytes: int | None) -> bool:
    """Whether the layout can be packed; VerificationError where it can be sent neither packed nor tensor by tensor."""
    first = misplaced(tensors, bucket_bytes)
    if first is None:
        return True
    alone = next((f"{name} ({dtype})" for name, dtype, _, _ in tensors if dtype not in SENT_ALONE), None)
    if alone is not None:
        raise VerificationError(
            f"vLLM's NCCL engine cannot carry this layout: packed, {first} would lie where its dtype cannot be read; "
            f"tensor by tensor, NCCL has no type for {alone}"
        )
    return False
