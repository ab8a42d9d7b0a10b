"""A checkpoint of another one's layout in one shard: the same small files, and whatever bytes the tensors are given."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from vst.checkpoint.manifest import Manifest
from vst.checkpoint.writer import safetensors_header, write_atomically
from vst.errors import VerificationError

SHARD = "model.safetensors"
SLACK = 1.1
"""A disk must have so much more room than the tensors take."""


def write_alike(directory: Path, manifest: Manifest, tensors: Iterable[bytes | memoryview]) -> None:
    """Write the bytes of ``tensors``, in the order of ``manifest``, and its small files into ``directory``.

    Takes the memory of one tensor if ``tensors`` is lazy. Creates ``directory``. VerificationError when the disk has
    no room for it: then nothing was written.
    """
    free = shutil.disk_usage(directory.parent).free
    if free < manifest.total_bytes * SLACK:
        raise VerificationError(
            f"{directory.parent}: {free} bytes are free, another checkpoint like {manifest.path} needs "
            f"{manifest.total_bytes}: make room, or set paths.cache"
        )
    directory.mkdir()
    layout = {entry.name: (entry.dtype, entry.shape) for entry in manifest.tensors}
    header = safetensors_header(layout, {"format": "pt"})
    write_atomically(directory / SHARD, chain([header], tensors))
    for name in manifest.files:
        shutil.copyfile(manifest.path / name, directory / name)
