"""Checkpoint A made from B, for whoever has only one: the same layout and small files, other values in every tensor.

Floating-point values are scaled by up to a quarter, tensors of one value are spread around it, other tensors (quantised
weights) are shifted by a row. What only says how others are stored stays as it is. The model makes no sense and is of
the same kind: enough for a transition to it and back to be seen.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vst.checkpoint.alike import write_alike
from vst.checkpoint.header import DTYPE_BITS
from vst.checkpoint.manifest import Manifest, TensorEntry, read_manifest
from vst.checkpoint.reader import TensorReader
from vst.checkpoint.tiny import locked, tree_digest
from vst.checkpoint.writer import write_atomically

FLOATS = {"BF16", "F16", "F32", "F64"}
LAYOUT_ONLY = ("g_idx", "qzeros", "weight_shape", "zero_point", "weight_zero_point", "inv_freq", "position_ids")
"""Tensors that say how others are stored, or where positions are: another value would be another kind of model."""

SCALE, SPREAD = 0.25, 0.1
MARK = ".derived"


def derive(checkpoint: Path, cache: Path) -> Path:
    """The directory of A below ``cache``, made unless it is there whole; as large as B.

    VerificationError when B cannot be read, or the disk has no room for another one of its size.
    """
    manifest = read_manifest(checkpoint)
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / _name(manifest)
    mark = target.with_name(target.name + MARK)
    with locked(cache / ".lock"):
        if not (mark.is_file() and target.is_dir() and mark.read_text() == tree_digest(target)):
            _install(manifest, target)
            write_atomically(mark, [tree_digest(target).encode()])
    return target


def _name(manifest: Manifest) -> str:
    """From what B is, without reading its bytes: layout, small files, and size and time of each shard."""
    digest = hashlib.sha256(manifest.layout_digest.encode())
    for name, content in sorted(manifest.files.items()):
        digest.update(f"{name} {content}\n".encode())
    for shard in manifest.shards:
        found = manifest.shard_path(shard.name).stat()
        digest.update(f"{shard.name} {found.st_size} {found.st_mtime_ns} {found.st_ino}\n".encode())
    return digest.hexdigest()[:24]


def _install(manifest: Manifest, target: Path) -> None:
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        write_alike(scratch / "new", manifest, _tensors(manifest))
        if target.exists():
            shutil.rmtree(target)
        os.rename(scratch / "new", target)
    finally:
        shutil.rmtree(scratch)


def _tensors(manifest: Manifest) -> Iterator[bytes]:
    with TensorReader(manifest) as reader:
        for entry in manifest.tensors:
            buffer = bytearray(entry.nbytes)
            reader.read_into(entry, memoryview(buffer))
            yield other_values(entry, bytes(buffer))


def other_values(entry: TensorEntry, data: bytes) -> bytes:
    """The bytes of A's tensor, from B's."""
    if entry.name.rpartition(".")[2] in LAYOUT_ONLY or not data:
        return data
    if entry.dtype in FLOATS:
        return _scaled(entry, data)
    row = max(1, entry.shape[-1] * DTYPE_BITS[entry.dtype] // 8 if len(entry.shape) > 1 else 1)
    return data[row:] + data[:row]


def _scaled(entry: TensorEntry, data: bytes) -> bytes:
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(entry.name.encode()).digest()[:8], "little")
    values = _read(entry.dtype, data)
    unit = np.random.Generator(np.random.Philox(seed)).uniform(-1, 1, values.shape).astype(values.dtype)
    constant = values.size > 0 and bool((values == values[0]).all())
    return _write(entry.dtype, values + SPREAD * unit if constant else values * (1 + SCALE * unit))


def _read(dtype: str, data: bytes) -> Any:
    import numpy as np

    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype])


def _write(dtype: str, values: Any) -> bytes:
    import numpy as np

    if dtype == "BF16":
        bits = np.ascontiguousarray(values, "<f4").view("<u4")
        return bytes(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes())
    return bytes(values.astype({"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).tobytes())
