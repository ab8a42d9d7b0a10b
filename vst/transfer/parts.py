"""What is sent: the tensors of a manifest in canonical order, and where the bytes of each come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.checkpoint.reader import TensorReader
from vst.errors import VerificationError
from vst.transfer.dtypes import torch_dtype


def load_manifest(path: str) -> Manifest:
    return Manifest.from_json(json.loads(Path(path).read_text()))


def part_of(manifest: Manifest, only: tuple[str, ...]) -> Manifest:
    """The manifest with the tensors named in ``only`` and no others; the whole one where nothing is named."""
    if not only:
        return manifest
    if missing := sorted(set(only) - set(manifest.by_name)):
        raise VerificationError(f"{manifest.path} has no tensor {missing[0]}, which was to be pushed alone")
    kept = set(only)
    return replace(manifest, tensors=tuple(entry for entry in manifest.tensors if entry.name in kept))


def mixed(manifest: Manifest, other: Manifest | None, names: tuple[str, ...]) -> list[tuple[Manifest, TensorEntry]]:
    """The tensors to send in canonical order, each with the manifest that its bytes come from."""
    if other is None:
        return [(manifest, entry) for entry in manifest.tensors]
    kept = set(names)
    return [
        (other, other.by_name[entry.name]) if entry.name in kept else (manifest, entry) for entry in manifest.tensors
    ]


def read(parts: list[tuple[Manifest, TensorEntry]]) -> Iterator[tuple[str, Any]]:
    """Each tensor in a buffer of its own, one at a time: nothing here keeps it once it was taken."""
    import torch

    readers = {id(manifest): TensorReader(manifest) for manifest, _ in parts}
    for manifest, entry in parts:
        buffer = torch.empty(entry.nbytes, dtype=torch.uint8)
        readers[id(manifest)].read_into(entry, memoryview(buffer.numpy()))
        yield entry.name, buffer.view(torch_dtype(entry.dtype)).view(entry.shape)
