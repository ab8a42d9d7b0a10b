"""The manifest of a checkpoint: its tensors in canonical order, its shards, and digests of the files beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vst.checkpoint.canonical import combine_content_digest, layout_digest
from vst.checkpoint.collector import collector_paused
from vst.checkpoint.companion_files import digest_companions
from vst.checkpoint.survey import Survey, survey
from vst.errors import VerificationError


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: where its ``nbytes`` bytes lie in which shard, and their ``blake3:<hex>`` if it was computed."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    shard: str
    offset: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One safetensors file: its size in bytes and the ``sha256:<hex>`` of the whole file if it was computed."""

    name: str
    nbytes: int
    digest: str | None = None


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of.

    ``tensors`` are in canonical order (bytewise by UTF-8 name); ``files`` maps the names of config, tokenizer and
    template files to their ``sha256:<hex>``. ``layout_digest`` says nothing about bytes, ``content_digest`` covers
    them.
    """

    path: Path
    tensors: tuple[TensorEntry, ...]
    shards: tuple[ShardEntry, ...]
    files: dict[str, str]

    @cached_property
    def layout_digest(self) -> str:
        """``sha256:<hex>`` over names, dtypes and shapes; the byte format is in ``canonical.py``."""
        return layout_digest(self.tensors)

    @cached_property
    def content_digest(self) -> str | None:
        """``blake3:<hex>`` over names, dtypes, shapes and tensor digests; None unless every tensor has a digest."""
        return combine_content_digest(self.tensors)

    @cached_property
    def total_bytes(self) -> int:
        """The bytes of all tensors, without headers."""
        return sum(entry.nbytes for entry in self.tensors)

    @cached_property
    def largest_tensor_bytes(self) -> int:
        return max((entry.nbytes for entry in self.tensors), default=0)

    @cached_property
    def by_name(self) -> dict[str, TensorEntry]:
        return {entry.name: entry for entry in self.tensors}

    def shard_path(self, name: str) -> Path:
        return self.path / name

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values, format ``vst-manifest/2`` (see ``manifest_json.py``)."""
        from vst.checkpoint.manifest_json import to_json

        return to_json(self)

    @staticmethod
    def from_json(content: Any, earlier: bool = False) -> Manifest:
        """The manifest that ``to_json`` wrote; ``VerificationError`` if malformed or at odds with its own digests.

        With ``earlier`` also one of format ``vst-manifest/1``, whose digests are compared with nothing but themselves.
        """
        from vst.checkpoint.manifest_json import from_json

        return from_json(content, earlier)


def read_manifest(directory: Path, allow_extra_shards: bool = False) -> Manifest:
    """The manifest of ``directory``, without tensor or shard digests: only headers and the small files are read.

    Raises ``VerificationError`` with the first problem if headers, index and shards are not what they must be.
    """
    found = survey(directory, allow_extra_shards)
    if found.problems:
        more = len(found.problems) - 1
        raise VerificationError(found.problems[0] + (f" (and {more} more problems)" if more else ""))
    return manifest_of(found)


@collector_paused()
def manifest_of(found: Survey) -> Manifest:
    """The manifest of a survey that found no problems."""
    shards = tuple(ShardEntry(name, header.file_bytes) for name, header in sorted(found.headers.items()))
    return Manifest(found.directory, tuple(_entries(found)), shards, digest_companions(found.directory))


def _entries(found: Survey) -> list[TensorEntry]:
    entries = [
        TensorEntry(tensor.name, tensor.dtype, tensor.shape, tensor.nbytes, shard, tensor.offset)
        for shard, header in found.headers.items()
        for tensor in header.tensors
    ]
    entries.sort(key=lambda entry: entry.name)
    return entries
