"""Manifests as JSON: format ``vst-manifest/2``.

An object with ``format``, ``path``, ``layout_digest``, ``content_digest`` (or null), ``total_bytes``, ``files``,
``shards`` as ``[name, nbytes, digest|null]`` and ``tensors`` as ``[name, dtype, shape, nbytes, shard number, offset,
digest|null]``. Digests of files are ``sha256:<hex>``, those of tensors and their content ``blake3:<hex>``.

Format ``vst-manifest/1`` had SHA-256 for tensors too. Such a manifest is read to see whether it fits together, and
refused where its digests would be compared with those of a checkpoint.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vst.checkpoint.canonical import BLAKE3, SHA256
from vst.checkpoint.index import plain_name
from vst.checkpoint.manifest import Manifest, ShardEntry, TensorEntry
from vst.errors import VerificationError

FORMAT = "vst-manifest/2"
EARLIER_FORMAT = "vst-manifest/1"
TENSOR_ALGORITHM = {FORMAT: BLAKE3, EARLIER_FORMAT: SHA256}
HEX = re.compile(r"[0-9a-f]{64}")
EARLIER_REFUSED = (
    f"a manifest of format {EARLIER_FORMAT!r} has SHA-256 digests of its tensors; this version takes BLAKE3 digests "
    f"(format {FORMAT!r}), and neither says anything about the other: run lane=L0 on the checkpoint for a new manifest"
)


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


def from_json(content: Any, earlier: bool = False) -> Manifest:
    """The manifest in ``content``; ``VerificationError`` if malformed or without the digests that it states.

    One of the earlier format is refused unless ``earlier`` allows it.
    """
    if not isinstance(content, dict) or content.get("format") not in TENSOR_ALGORITHM:
        raise VerificationError(f"not a manifest: expected an object of format {FORMAT!r}")
    if content["format"] == EARLIER_FORMAT and not earlier:
        raise VerificationError(EARLIER_REFUSED)
    try:
        manifest = _manifest(content, TENSOR_ALGORITHM[content["format"]])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise VerificationError(f"malformed manifest of format {content['format']!r}: {error}") from error
    for key in ("layout_digest", "content_digest", "total_bytes"):
        stated, found = content.get(key), getattr(manifest, key)
        if stated != found:
            raise VerificationError(f"manifest contradicts itself: {key} is {stated!r}, its tensors give {found!r}")
    return manifest


def _manifest(content: dict[str, Any], algorithm: str) -> Manifest:
    rows = content["shards"]
    shards = tuple(ShardEntry(_file(name), _count(size), _digest(digest, SHA256)) for name, size, digest in rows)
    tensors = tuple(_tensor(row, shards, algorithm) for row in content["tensors"])
    files = {_text(name): _required(digest, SHA256) for name, digest in content["files"].items()}
    names = [entry.name for entry in tensors]
    if any(first >= second for first, second in zip(names, names[1:], strict=False)):
        raise ValueError("tensors are not in canonical order")
    return Manifest(Path(_text(content["path"])), tensors, shards, files)


def _tensor(row: Any, shards: tuple[ShardEntry, ...], algorithm: str) -> TensorEntry:
    name, dtype, shape, nbytes, shard, offset, digest = row
    sizes = tuple(map(_count, shape))
    place = shards[_count(shard)].name
    found = _digest(digest, algorithm)
    return TensorEntry(_text(name), _text(dtype), sizes, _count(nbytes), place, _count(offset), found)


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


def _digest(value: Any, algorithm: str) -> str | None:
    return None if value is None else _required(value, algorithm)


def _required(value: Any, algorithm: str) -> str:
    found, _, digits = value.partition(":") if isinstance(value, str) else ("", "", "")
    if found != algorithm or not HEX.fullmatch(digits):
        raise ValueError(f"expected {algorithm}:<64 hex digits>, found {str(value)[:80]!r}")
    return str(value)
