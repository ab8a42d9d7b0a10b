"""A checkpoint as the double loads it from disk: the shape from its config, every tensor from its shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vst.checkpoint.config_file import try_config
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.reader import TensorReader
from vst.errors import VerificationError
from vst.selftest.decoder import Shape
from vst.transfer.dtypes import torch_dtype

KINDS = ("llama", "mixtral")


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint by name, and what its config says."""

    path: Path
    config: Mapping[str, Any]
    shape: Shape
    tensors: Mapping[str, Tensor]


def load(path: Path) -> Checkpoint:
    """Read a whole checkpoint; VerificationError for a model that the double cannot compute."""
    config = try_config(path) or {}
    if config.get("model_type") not in KINDS:
        raise VerificationError(f"{path}: the scripted server knows {', '.join(KINDS)}, not {config.get('model_type')}")
    manifest = read_manifest(path)
    reader = TensorReader(manifest)
    tensors = {}
    for entry in manifest.tensors:
        buffer = torch.empty(entry.nbytes, dtype=torch.uint8)
        reader.read_into(entry, memoryview(buffer.numpy()))
        tensors[entry.name] = buffer.view(torch_dtype(entry.dtype)).view(entry.shape)
    return Checkpoint(path, config, Shape.of(config), tensors)
