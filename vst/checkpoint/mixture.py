"""A checkpoint made of two: B with some tensors at A's values, on disk, so that a server can be started cold on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from vst.checkpoint.alike import write_alike
from vst.checkpoint.manifest import Manifest
from vst.checkpoint.reader import TensorReader
from vst.errors import VerificationError


def write_mixture(directory: Path, manifest: Manifest, other: Manifest, names: Collection[str]) -> None:
    """Write ``manifest``'s checkpoint with the tensors ``names`` from ``other``; both must have one layout.

    One shard, read tensor by tensor, so that it takes the memory of the largest one. The small files are those of
    ``manifest``. Creates ``directory``. VerificationError for another layout, an unknown name or a full disk.
    """
    if manifest.layout_digest != other.layout_digest:
        raise VerificationError(f"{other.path} has another layout than {manifest.path}: they cannot be mixed")
    if unknown := sorted(set(names) - set(manifest.by_name)):
        raise VerificationError(f"{manifest.path} has no tensor {unknown[0]}, which was to be taken from the other one")
    write_alike(directory, manifest, _bytes(manifest, other, frozenset(names)))


def _bytes(manifest: Manifest, other: Manifest, names: frozenset[str]) -> Iterator[memoryview]:
    with TensorReader(manifest) as ours, TensorReader(other) as theirs:
        for entry in manifest.tensors:
            buffer = memoryview(bytearray(entry.nbytes))
            if entry.name in names:
                theirs.read_into(other.by_name[entry.name], buffer)
            else:
                ours.read_into(entry, buffer)
            yield buffer
