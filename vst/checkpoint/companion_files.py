"""The small files beside the shards that decide what a checkpoint means: config, tokenizer, templates."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from vst.checkpoint.canonical import SHA256, spelled
from vst.checkpoint.index import resolve_inside
from vst.checkpoint.regular import open_regular

COMPANION_NAMES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
CHUNK_BYTES = 1 << 20


def digest_companions(directory: Path) -> dict[str, str]:
    """``sha256:<hex>`` of each of the known files that exists in ``directory``, by name.

    Raises ``VerificationError`` if one is not a regular file or leads out of the directory.
    """
    present = [name for name in COMPANION_NAMES if os.path.lexists(directory / name)]
    return {name: digest_file(resolve_inside(directory, name)) for name in present}


def digest_file(path: Path) -> str:
    """``sha256:<hex>`` of a whole regular file."""
    digest = hashlib.sha256()
    with open_regular(path) as fd:
        while chunk := os.read(fd, CHUNK_BYTES):
            digest.update(chunk)
    return spelled(SHA256, digest)
