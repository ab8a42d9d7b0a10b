"""The index of a checkpoint and the shards that belong to it, none of which may lie outside the directory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from vst.checkpoint.regular import bounded, describe, read_small
from vst.checkpoint.strict_json import is_text, parse_object
from vst.errors import VerificationError

INDEX_NAME = "model.safetensors.index.json"
SUFFIX = ".safetensors"
MAX_INDEX_BYTES = 1 << 30
NUMBERED = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})\.safetensors")


@dataclass(frozen=True, slots=True)
class Shard:
    """A safetensors file of a checkpoint: its plain name in the directory and where it is."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Index:
    """The parsed index: tensor name -> shard name, and the total size in bytes if it states one."""

    weight_map: dict[str, str]
    total_size: int | None

    @property
    def shard_names(self) -> list[str]:
        """The shards that the index names, each once, sorted."""
        return sorted(set(self.weight_map.values()))


def read_index(directory: Path) -> Index | None:
    """The index of ``directory``, None if it has none; ``VerificationError`` if it is malformed."""
    path = directory / INDEX_NAME
    if not os.path.lexists(path):
        return None
    raw = read_small(resolve_inside(directory, INDEX_NAME), MAX_INDEX_BYTES)
    try:
        return parse_index(raw)
    except ValueError as error:
        raise VerificationError(f"{path}: {bounded(str(error))}") from error


def parse_index(raw: bytes) -> Index:
    """The index whose JSON is ``raw``; ``ValueError`` with the reason if it is malformed."""
    content = parse_object(raw)
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError("expected a weight_map object that names at least one tensor")
    for tensor, shard in weight_map.items():
        if not is_text(tensor) or not is_text(shard):
            raise ValueError(f"weight_map entry {tensor!r} must map a name to a shard name")
    return Index(weight_map, _total_size(content.get("metadata")))


def _total_size(metadata: object) -> int | None:
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise ValueError("metadata must be an object")
    found = metadata.get("total_size")
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if found is not None and (type(found) is not int or found < 0):
        raise ValueError(f"metadata.total_size {str(found)[:40]!r} is not a number of bytes")
    return found


def plain_name(name: str) -> bool:
    """Whether ``name`` names an entry of a directory itself: no separator, no parent, no NUL."""
    return bool(name) and name not in (".", "..") and not any(sign in name for sign in "/\\\0")


def resolve_inside(directory: Path, name: str) -> Path:
    """The path of the entry ``name``, after making sure that it stays inside ``directory``.

    A symbolic link may lead elsewhere in the directory, or into the ``blobs`` directory of the same repository when the
    directory is ``snapshots/<revision>`` of a Hugging Face hub cache. Raises ``VerificationError`` for anything else.
    """
    if not is_text(name) or not plain_name(name):
        raise VerificationError(f"{directory}: {name!r} is not a plain file name, it must lie inside the directory")
    root = os.path.realpath(directory)
    try:
        target = os.path.realpath(os.path.join(root, name))
    except (OSError, ValueError) as error:
        raise VerificationError(f"{directory}: {name!r} cannot be resolved: {describe(error)}") from error
    if not target.startswith(root.rstrip(os.sep) + os.sep) and os.path.dirname(target) != _hub_blobs(root):
        raise VerificationError(
            f"{directory}: {name!r} leads out of the directory to {target}; "
            "only links into the blobs of the same hub cache repository are followed"
        )
    return directory / name


def _hub_blobs(root: str) -> str | None:
    snapshots = os.path.dirname(root)
    if os.path.basename(snapshots) != "snapshots":
        return None
    return os.path.join(os.path.dirname(snapshots), "blobs")


def shards_on_disk(directory: Path) -> list[str]:
    """The names of all ``*.safetensors`` entries of the directory, sorted; ``VerificationError`` if it is none."""
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(SUFFIX))
    except (OSError, ValueError) as error:
        raise VerificationError(f"{directory}: not a readable directory: {describe(error)}") from error


def find_shards(directory: Path, index: Index | None = None) -> tuple[Shard, ...]:
    """The shards of a checkpoint in name order: those of its index, or without one every ``*.safetensors``.

    ``index`` saves reading it again. Raises ``VerificationError`` if there are none, or one is not plainly inside.
    """
    found = index or read_index(directory)
    names = found.shard_names if found else shards_on_disk(directory)
    if not names:
        raise VerificationError(f"{directory}: no {SUFFIX} file and no {INDEX_NAME}")
    return tuple(Shard(name, resolve_shard(directory, name)) for name in names)


def resolve_shard(directory: Path, name: str) -> Path:
    """``resolve_inside`` for a shard, whose name must also end in ``.safetensors``."""
    if not name.endswith(SUFFIX):
        raise VerificationError(f"{directory}: shard {name!r} is not a {SUFFIX} file")
    return resolve_inside(directory, name)


def missing_numbers(names: list[str]) -> list[str]:
    """The shards that the numbering ``-00001-of-00003`` of ``names`` implies and that are not among them.

    Only of use without an index; at most the first 20 are returned, because the numbers are the file's own claim.
    """
    present = set(names)
    missing: list[str] = []
    for stem, total in sorted({(match[1], match[3]) for name in names if (match := NUMBERED.fullmatch(name))}):
        for number in range(1, min(int(total), 100_000) + 1):
            name = f"{stem}-{number:0{len(total)}d}-of-{total}{SUFFIX}"
            if name not in present and len(missing) < 20:
                missing.append(name)
    return missing
