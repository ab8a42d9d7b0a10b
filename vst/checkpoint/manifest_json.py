"""Manifests as JSON: format ``vst-manifest/1``.

An object with ``format``, ``path``, ``layout_digest``, ``content_digest`` (or null), ``total_bytes``, ``files``,
``shards`` as ``[name, nbytes, digest|null]`` and ``tensors`` as ``[name, dtype, shape, nbytes, shard number, offset,
digest|null]``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vst.checkpoint.index import plain_name
from vst.checkpoint.manifest import Manifest, ShardEntry, TensorEntry
from vst.errors import VerificationError

FORMAT = "vst-manifest/1"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def to_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest as JSON values; tensors refer to shards by position to stay compact."""
    number = {shard.name: position for position, shard in enumerate(manifest.shards)}
    return {
        "format": FORMAT,
        "path": str(manifest.path),
        "layout_digest": manifest.layout_digest,
        "content_digest": manifest.content_digest,
        "total_bytes": manifest.total_bytes,
        "files": dict(manifest.files),
        "shards": [[shard.name, shard.nbytes, shard.digest] for shard in manifest.shards],
        "tensors": [
            [entry.name, entry.dtype, list(entry.shape), entry.nbytes, number[entry.shard], entry.offset, entry.digest]
            for entry in manifest.tensors
        ],
    }


def from_json(content: Any) -> Manifest:
    """The manifest in ``content``; ``VerificationError`` if malformed or without the digests that it states."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise VerificationError(f"not a manifest: expected an object of format {FORMAT!r}")
    try:
        manifest = _manifest(content)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise VerificationError(f"malformed manifest of format {FORMAT!r}: {error}") from error
    for key in ("layout_digest", "content_digest", "total_bytes"):
        stated, found = content.get(key), getattr(manifest, key)
        if stated != found:
            raise VerificationError(f"manifest contradicts itself: {key} is {stated!r}, its tensors give {found!r}")
    return manifest


def _manifest(content: dict[str, Any]) -> Manifest:
    shards = tuple(ShardEntry(_file(name), _count(size), _digest(digest)) for name, size, digest in content["shards"])
    tensors = tuple(_tensor(row, shards) for row in content["tensors"])
    files = {_text(name): _required(digest) for name, digest in content["files"].items()}
    names = [entry.name for entry in tensors]
    if any(first >= second for first, second in zip(names, names[1:], strict=False)):
        raise ValueError("tensors are not in canonical order")
    return Manifest(Path(_text(content["path"])), tensors, shards, files)


def _tensor(row: Any, shards: tuple[ShardEntry, ...]) -> TensorEntry:
    name, dtype, shape, nbytes, shard, offset, digest = row
    sizes = tuple(map(_count, shape))
    place = shards[_count(shard)].name
    return TensorEntry(_text(name), _text(dtype), sizes, _count(nbytes), place, _count(offset), _digest(digest))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, found {type(value).__name__}")
    return value


def _file(value: Any) -> str:
    if not plain_name(_text(value)):
        raise ValueError(f"{value!r} is not a plain file name")
    return _text(value)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a non-negative integer, found {str(value)[:40]}")
    return value


def _digest(value: Any) -> str | None:
    return None if value is None else _required(value)


def _required(value: Any) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise ValueError(f"expected sha256:<64 hex digits>, found {str(value)[:80]!r}")
    return value
