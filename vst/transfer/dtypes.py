"""safetensors' dtype names and torch's: the one table, for the publisher."""

from __future__ import annotations

from typing import Any

from vst.errors import VerificationError

TORCH_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
}


def torch_dtype(name: str) -> Any:
    """The ``torch.dtype`` of a safetensors dtype; VerificationError names a dtype that this torch cannot hold."""
    import torch

    dtype = getattr(torch, TORCH_NAMES.get(name, ""), None)
    if dtype is None:
        raise VerificationError(f"dtype {name} cannot be sent: torch {torch.__version__} has no type for it")
    return dtype
