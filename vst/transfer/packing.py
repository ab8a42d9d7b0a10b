"""What vLLM's NCCL engine can pack: it lays tensors byte to byte, and cannot look at one whose place is not a multiple
of its element's size (0.28 to 0.33: ``unpack_tensor`` views a slice of bytes as its dtype, which torch then refuses).

Nor can it pack a tensor without dimensions before 0.32. Such layouts are sent tensor by tensor instead, for which
NCCL itself must know each dtype.
"""

from __future__ import annotations

from collections.abc import Iterable

from vst.errors import VerificationError
from vst.transfer.footprint import NCCL_BUCKET_BYTES

Described = tuple[str, str, int, int, int]
"""Name, torch dtype, bytes, bytes of an element, how many dimensions."""

SENT_ALONE = frozenset(
    ("int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn"),
)
"""What ``ncclDataTypeEnum.from_torch`` knows, by torch's names (0.28 to 0.33)."""


def misplaced(tensors: Iterable[Described], bucket_bytes: int | None, scalars: bool = True) -> str | None:
    """The first tensor that cannot be packed, or not looked at from where it would lie; None if there is none.

    ``scalars``: whether this vLLM packs tensors without dimensions.

    Packs as vLLM does: a buffer is closed by the tensor that takes it over its size.
    """
    limit = NCCL_BUCKET_BYTES if bucket_bytes is None else bucket_bytes
    place = 0
    for name, _, nbytes, itemsize, dimensions in tensors:
        if nbytes and (place % itemsize or not (scalars or dimensions)):
            return name
        place += nbytes
        if place > limit:
            place = 0
    return None


def packable(tensors: list[Described], bucket_bytes: int | None, scalars: bool = True) -> bool:
    """Whether the layout can be packed; VerificationError where it can be sent neither packed nor tensor by tensor."""
    first = misplaced(tensors, bucket_bytes, scalars)
    if first is None:
        return True
    alone = next((f"{name} ({dtype})" for name, dtype, *_ in tensors if dtype not in SENT_ALONE), None)
    if alone is not None:
        raise VerificationError(
            f"vLLM's NCCL engine cannot carry this layout: {first} cannot be packed; "
            f"tensor by tensor, NCCL has no type for {alone}"
        )
    return False
