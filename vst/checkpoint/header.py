"""Reading the header of a safetensors file, strictly.

Format (https://github.com/huggingface/safetensors): 8 bytes little-endian length N, N bytes of JSON that begin with
``{``, then the data; each tensor has ``dtype``, ``shape`` and ``data_offsets`` relative to the data, without holes or
overlaps.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.checkpoint.regular import bounded, describe, open_regular, read_at
from vst.checkpoint.strict_json import is_text, parse_object
from vst.errors import VerificationError

DTYPE_BITS: dict[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of one element of every dtype that safetensors 0.8 knows."""

MAX_HEADER_BYTES = 100_000_000
MAX_RANK = 64
MAX_DIMENSION = 2**63 - 1
LENGTH_BYTES = 8
METADATA_KEY = "__metadata__"
TENSOR_KEYS = {"dtype", "shape", "data_offsets"}


class HeaderError(VerificationError):
    """A file is not a well-formed safetensors file; the message names the file and what was found."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a shard; ``offset`` counts bytes from the start of the file, ``nbytes`` is its length."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """The tensors of a shard in file order, its string metadata, and the bytes of header (with length) and file."""

    tensors: tuple[TensorInfo, ...]
    metadata: dict[str, str]
    header_bytes: int
    file_bytes: int


def read_header(path: Path) -> Header:
    """The header of the safetensors file at ``path``; reads nothing of the data.

    Raises ``HeaderError`` naming the file for anything that is not a regular, complete, well-formed safetensors file.
    """
    try:
        with open_regular(path) as fd:
            size = os.fstat(fd).st_size
            return parse_header(_header_json(fd, size), size)
    except VerificationError as error:
        raise HeaderError(str(error)) from error
    except OSError as error:
        raise HeaderError(f"{path}: cannot be read: {describe(error)}") from error
    except ValueError as error:
        raise HeaderError(f"{path}: {bounded(str(error))}") from error


def _header_json(fd: int, size: int) -> bytes:
    if size < LENGTH_BYTES:
        raise ValueError(f"truncated: {size} bytes, a safetensors file begins with {LENGTH_BYTES}")
    length = int.from_bytes(_exactly(fd, LENGTH_BYTES, 0), "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"header of {length} bytes, expected at most {MAX_HEADER_BYTES}")
    if length > size - LENGTH_BYTES:
        raise ValueError(f"truncated: {size} bytes, header needs {LENGTH_BYTES + length}")
    return _exactly(fd, length, LENGTH_BYTES)


def _exactly(fd: int, count: int, offset: int) -> bytes:
    content = bytearray(count)
    done = read_at(fd, memoryview(content), offset)
    if done != count:
        raise ValueError(f"the file ended while it was read: {done} bytes at offset {offset}, expected {count}")
    return bytes(content)


def parse_header(raw: bytes, file_bytes: int) -> Header:
    """The header whose JSON is ``raw`` in a file of ``file_bytes`` bytes; ``ValueError`` if malformed."""
    if not raw.startswith(b"{"):
        raise ValueError(f"header begins with {raw[:1]!r}, expected b'{{'")
    table = parse_object(raw)
    metadata = _metadata(table.pop(METADATA_KEY, {}))
    start = LENGTH_BYTES + len(raw)
    tensors = [_tensor(name, entry, start) for name, entry in table.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
    _check_spans(tensors, start, file_bytes)
    return Header(tuple(tensors), metadata, start, file_bytes)


def _metadata(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(is_text(key) and is_text(value) for key, value in found.items()):
        raise ValueError(f"{METADATA_KEY} must map strings to strings")
    return found


def _tensor(name: str, entry: Any, start: int) -> TensorInfo:
    if not is_text(name):
        raise ValueError(f"tensor name {name!r} is not valid Unicode")
    if not isinstance(entry, dict) or entry.keys() != TENSOR_KEYS:
        raise ValueError(f"tensor {name!r}: expected dtype, shape and data_offsets, found {_short(entry)}")
    dtype = entry["dtype"]
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise ValueError(f"tensor {name!r}: unknown dtype {_short(dtype)}")
    shape = _shape(name, entry["shape"])
    begin, end = _offsets(name, entry["data_offsets"])
    expected = math.prod(shape) * bits
    if expected != (end - begin) * 8:
        needed = f"{dtype} of shape {_short(list(shape))} needs {_bytes(expected)}"
        raise ValueError(f"tensor {name!r}: {needed}, data_offsets span {end - begin}")
    return TensorInfo(name, dtype, shape, start + begin, end - begin)


def _shape(name: str, found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or len(found) > MAX_RANK:
        raise ValueError(f"tensor {name!r}: shape {_short(found)} is not a list of at most {MAX_RANK} dimensions")
    for size in found:
        if type(size) is not int or not 0 <= size <= MAX_DIMENSION:
            raise ValueError(f"tensor {name!r}: {_short(size)} in shape is not an integer from 0 to 2**63-1")
    return tuple(found)


def _offsets(name: str, found: Any) -> tuple[int, int]:
    if isinstance(found, list) and len(found) == 2:
        begin, end = found
        if type(begin) is int and type(end) is int and 0 <= begin <= end:
            return begin, end
    raise ValueError(f"tensor {name!r}: data_offsets {_short(found)} are not integers [begin, end], begin <= end")


def _check_spans(tensors: list[TensorInfo], start: int, file_bytes: int) -> None:
    position = start
    for tensor in tensors:
        if tensor.offset != position:
            kind = "a hole" if tensor.offset > position else "an overlap"
            raise ValueError(
                f"tensor {tensor.name!r}: {kind} in the data, begins at byte {tensor.offset}, expected {position}"
            )
        position += tensor.nbytes
    if file_bytes < position:
        raise ValueError(f"truncated: {file_bytes} bytes, header needs {position}")
    if file_bytes > position:
        extra = file_bytes - position
        raise ValueError(f"{file_bytes} bytes, header needs {position}: {extra} bytes belong to no tensor")


def _bytes(bits: int) -> str:
    return str(bits // 8) if bits % 8 == 0 else f"{bits} bits, which are no whole bytes,"


def _short(value: object) -> str:
    """A short rendering for messages; integers beyond the interpreter's digit limit and deep nesting have none."""
    try:
        return bounded(repr(value), 80)
    except (RecursionError, ValueError):
        return type(value).__name__
