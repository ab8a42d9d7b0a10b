"""A checkpoint made of two: B with some tensors at A's values, on disk, so that a server can be started cold on it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from vst.checkpoint.manifest import Manifest
from vst.checkpoint.reader import TensorReader
from vst.checkpoint.writer import safetensors_header, write_atomically
from vst.errors import VerificationError

SHARD = "model.safetensors"


def write_mixture(directory: Path, manifest: Manifest, other: Manifest, names: Collection[str]) -> None:
    """Write ``manifest``'s checkpoint with the tensors ``names`` from ``other``; both must have one layout.

    One shard, read tensor by tensor, so that it takes the memory of the largest one. The small files are those of
    ``manifest``. Creates ``directory``. VerificationError for another layout or an unknown name.
    """
    if manifest.layout_digest != other.layout_digest:
        raise VerificationError(f"{other.path} has another layout than {manifest.path}: they cannot be mixed")
    if unknown := sorted(set(names) - set(manifest.by_name)):
        raise VerificationError(f"{manifest.path} has no tensor {unknown[0]}, which was to be taken from the other one")
    directory.mkdir(parents=True)
    layout = {entry.name: (entry.dtype, entry.shape) for entry in manifest.tensors}
    parts = _bytes(manifest, other, frozenset(names))
    write_atomically(directory / SHARD, _chain(safetensors_header(layout, {"format": "pt"}), parts))
    for name in manifest.files:
        shutil.copyfile(manifest.path / name, directory / name)


def _chain(first: bytes, rest: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    yield first
    yield from rest


def _bytes(manifest: Manifest, other: Manifest, names: frozenset[str]) -> Iterator[memoryview]:
    with TensorReader(manifest) as ours, TensorReader(other) as theirs:
        for entry in manifest.tensors:
            buffer = memoryview(bytearray(entry.nbytes))
            if entry.name in names:
                theirs.read_into(other.by_name[entry.name], buffer)
            else:
                ours.read_into(entry, buffer)
            yield buffer
