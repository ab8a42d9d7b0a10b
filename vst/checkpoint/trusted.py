"""Check ``files.trusted``: the shards have the digests that somebody the user trusts has published."""

from __future__ import annotations

import re
from pathlib import Path

from vst.checkpoint.canonical import BLAKE3
from vst.checkpoint.index import SUFFIX
from vst.checkpoint.manifest import Manifest
from vst.checkpoint.manifest_json import FORMAT
from vst.checkpoint.regular import read_small
from vst.checkpoint.strict_json import parse_object
from vst.errors import VerificationError

MAX_TRUSTED_BYTES = 1 << 30
HEX = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
SUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?(.+)")


def read_trusted(path: Path) -> dict[str, str]:
    """File name -> ``sha256:<hex>`` from a manifest of ours, a JSON object of digests, or the output of ``sha256sum``.

    Raises ``VerificationError`` naming the file if it is none of these or has no digests.
    """
    raw = read_small(path, MAX_TRUSTED_BYTES)
    try:
        found = _from_json(raw) if raw.lstrip().startswith(b"{") else _from_lines(raw.decode("utf-8"))
    except (ValueError, VerificationError) as error:
        raise VerificationError(f"{path}: {error}") from error
    if not found:
        raise VerificationError(f"{path}: holds no digests")
    return found


def _from_json(raw: bytes) -> dict[str, str]:
    content = parse_object(raw)
    if "format" not in content:
        return {name: _digest(name, value) for name, value in content.items()}
    manifest = Manifest.from_json(content)
    missing = [shard.name for shard in manifest.shards if shard.digest is None]
    if missing:
        raise ValueError(f"manifest of format {FORMAT!r} without a digest for shard {missing[0]!r}")
    return manifest.files | {shard.name: shard.digest for shard in manifest.shards if shard.digest}


def _from_lines(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        match = SUM_LINE.fullmatch(line.rstrip("\r"))
        if match is None and line.strip() and not line.startswith("#"):
            raise ValueError(f"line {number} is not '<64 hex digits>  <file name>'")
        if match:
            name, digest = match[2], f"sha256:{match[1].lower()}"
            if found.setdefault(name, digest) != digest:
                raise ValueError(f"line {number} gives a second digest for {name!r}")
    return found


def _digest(name: str, value: object) -> str:
    if isinstance(value, str) and value.startswith(f"{BLAKE3}:"):
        raise ValueError(f"{name!r}: has a BLAKE3 digest, files are compared by SHA-256: give what sha256sum prints")
    match = HEX.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{name!r}: expected 64 hex digits, found {str(value)[:80]!r}")
    return f"sha256:{match[1].lower()}"


def compare_trusted(manifest: Manifest, trusted: dict[str, str]) -> list[str]:
    """What differs: shards with another digest or only on one side, and config or tokenizer files."""
    shards = {shard.name: shard.digest for shard in manifest.shards}
    problems = [_differs(name, digest, trusted.get(name)) for name, digest in shards.items()]
    problems += [_differs(name, digest, trusted[name]) for name, digest in manifest.files.items() if name in trusted]
    extra = sorted(name for name in trusted if name.endswith(SUFFIX) and name not in shards)
    problems += [f"shard {name!r} is trusted but not in the checkpoint" for name in extra]
    return [f"{manifest.path}: {problem}" for problem in problems if problem]


def _differs(name: str, found: str | None, expected: str | None) -> str | None:
    if expected is None:
        return f"{name!r} has no trusted digest"
    return None if found == expected else f"{name!r} has digest {found}, trusted is {expected}"
