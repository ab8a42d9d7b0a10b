"""The manifest of a checkpoint as the version before BLAKE3 wrote it, by the formats that it had published."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from vst.checkpoint.manifest import read_manifest


def earlier_manifest(directory: Path) -> dict[str, Any]:
    """Format ``vst-manifest/1``, with SHA-256 of tensors, content and shards."""
    manifest = read_manifest(directory)
    content = manifest.to_json()
    files = {shard.name: (directory / shard.name).read_bytes() for shard in manifest.shards}
    for shard in content["shards"]:
        shard[2] = _sha256(files[shard[0]])
    for row, entry in zip(content["tensors"], manifest.tensors, strict=True):
        row[6] = _sha256(files[entry.shard][entry.offset : entry.offset + entry.nbytes])
    rows = [[*row[:3], row[6]] for row in content["tensors"]]
    text = "vst-content/1\n" + "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    return {**content, "format": "vst-manifest/1", "content_digest": _sha256(text.encode())}


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
