"""Writing safetensors files: small real ones, and sparse ones that are large in name only."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vst.checkpoint.header import DTYPE_BITS, LENGTH_BYTES, METADATA_KEY
from vst.checkpoint.index import INDEX_NAME
from vst.errors import VerificationError

Tensor = tuple[str, Sequence[int], bytes | memoryview]
"""dtype as safetensors names it, shape, and the bytes."""

ALIGNMENT = 8


def safetensors_header(layout: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str]) -> bytes:
    """Length and JSON of a file whose tensors lie in the order of ``layout``; its length is a multiple of 8."""
    table: dict[str, object] = {METADATA_KEY: dict(metadata)} if metadata else {}
    position = 0
    for name, (dtype, shape) in layout.items():
        end = position + byte_count(dtype, shape)
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(table, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def byte_count(dtype: str, shape: Sequence[int]) -> int:
    """The bytes of a tensor; ``VerificationError`` for an unknown dtype or no whole number of bytes."""
    bits = math.prod(shape) * DTYPE_BITS.get(dtype, 0)
    if dtype not in DTYPE_BITS or bits % 8:
        raise VerificationError(f"{dtype} of shape {list(shape)} cannot be stored: unknown dtype or no whole bytes")
    return bits // 8


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes ``path`` atomically with the tensors in the order given.

    Raises ``VerificationError`` if the bytes of a tensor do not fit its dtype and shape; ``OSError`` of the file
    system.
    """
    for name, (dtype, shape, data) in tensors.items():
        found, expected = memoryview(data).nbytes, byte_count(dtype, shape)
        if found != expected:
            raise VerificationError(f"tensor {name!r}: {found} bytes, {dtype} of shape {list(shape)} needs {expected}")
    layout = {name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}
    header = safetensors_header(layout, metadata or {})
    write_atomically(path, [header, *(data for _, _, data in tensors.values())])


def write_atomically(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Writes the parts to a temporary file beside ``path``, syncs and renames it: no reader sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as stream:
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_index(directory: Path, weight_map: Mapping[str, str], total_size: int) -> None:
    """Writes the index of a sharded checkpoint."""
    content = {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(weight_map.items()))}
    write_atomically(directory / INDEX_NAME, [json.dumps(content, indent=1).encode("ascii")])


def write_sparse_checkpoint(directory: Path, shards: int, tensors_per_shard: int, tensor_bytes: int) -> None:
    """A checkpoint of BF16 expert weights that takes almost no disk: the data of each shard is a hole.

    For measuring the audit at the size of the largest models. ``tensor_bytes`` must be even. Creates ``directory``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        shard = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        names = [f"model.layers.{number}.mlp.experts.{expert}.gate_proj.weight" for expert in range(tensors_per_shard)]
        header = safetensors_header({name: ("BF16", (tensor_bytes // 2,)) for name in names}, {"format": "pt"})
        with open(directory / shard, "wb") as stream:
            stream.write(header)
            stream.truncate(len(header) + tensor_bytes * tensors_per_shard)
        weight_map |= dict.fromkeys(names, shard)
    write_index(directory, weight_map, tensor_bytes * len(weight_map))
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    write_atomically(directory / "config.json", [json.dumps(config).encode("ascii")])
