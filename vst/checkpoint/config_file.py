"""The config of a checkpoint and its tied flag (part of check ``files.config``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vst.checkpoint.families import family
from vst.checkpoint.findings import Findings
from vst.checkpoint.index import resolve_inside
from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.checkpoint.reader import TensorReader
from vst.checkpoint.regular import read_small
from vst.errors import VerificationError

CONFIG_NAME = "config.json"
MAX_CONFIG_BYTES = 64 << 20
COMPARE_BYTES = 4 << 20
TIE_KEY = "tie_word_embeddings"


def read_config(directory: Path) -> dict[str, Any]:
    """The parsed config.json; ``VerificationError`` if it is missing or not a JSON object.

    Infinity and NaN are accepted, because transformers writes them (``time_step_limit`` of Mamba-2 configs).
    """
    path = resolve_inside(directory, CONFIG_NAME)
    try:
        content = json.loads(read_small(path, MAX_CONFIG_BYTES).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise VerificationError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def try_config(directory: Path) -> dict[str, Any] | None:
    """``read_config`` for those who can do without: None if it cannot be read, which ``files.config`` reports."""
    try:
        return read_config(directory)
    except VerificationError:
        return None


def check_architectures(where: str, config: dict[str, Any], found: Findings) -> None:
    """The config must say which model class the checkpoint is for."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        found.problems.append(f"{where}: {CONFIG_NAME} has no list of architectures, found {str(names)[:80]!r}")


def tied_flag(config: dict[str, Any]) -> bool | None:
    """``tie_word_embeddings`` of the config or its ``text_config``; None if neither has it as a boolean.

    The default of an absent key differs from one model type to the next in transformers, so none is assumed here.
    """
    text = config.get("text_config")
    for place in (config, text if isinstance(text, dict) else {}):
        if isinstance(place.get(TIE_KEY), bool):
            return bool(place[TIE_KEY])
    return None


def check_tied(where: str, manifest: Manifest, config: dict[str, Any], allowed: bool, found: Findings) -> None:
    """The tied flag and the head tensor must tell the same story; ``allowed`` turns the mismatch into a warning."""
    tied = tied_flag(config)
    head = _only(manifest, "head")
    if head is None:
        if tied is False:
            found.complain(f"{where}: {TIE_KEY} is false but there is no head tensor", allowed)
        elif tied is None:
            found.warnings.append(f"{where}: no head tensor and {CONFIG_NAME} does not say {TIE_KEY}; taken as tied")
    elif tied:
        _check_copy(where, manifest, head, allowed, found)


def _check_copy(where: str, manifest: Manifest, head: TensorEntry, allowed: bool, found: Findings) -> None:
    embedding = _only(manifest, "embedding")
    if embedding is not None and same_bytes(manifest, head, embedding):
        found.warnings.append(f"{where}: {TIE_KEY} is true and {head.name!r} is a copy of {embedding.name!r}")
        return
    other = f"differs from {embedding.name!r}" if embedding else "has no embedding to be tied to"
    found.complain(f"{where}: {TIE_KEY} is true but {head.name!r} in {head.shard!r} {other}", allowed)


def _only(manifest: Manifest, wanted: str) -> TensorEntry | None:
    """The first tensor of the family, shortest name first: the model's own before a draft layer's copy."""
    names = [entry for entry in manifest.tensors if len(entry.shape) == 2 and family(entry.name) == wanted]
    return min(names, key=lambda entry: len(entry.name), default=None)


def same_bytes(manifest: Manifest, first: TensorEntry, second: TensorEntry) -> bool:
    """Whether two tensors have equal dtype, shape and bytes; reads in pieces and stops at the first difference."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    size = min(COMPARE_BYTES, first.nbytes)
    left, right = memoryview(bytearray(size)), memoryview(bytearray(size))
    with TensorReader(manifest) as reader:
        for start in range(0, first.nbytes, COMPARE_BYTES):
            count = min(COMPARE_BYTES, first.nbytes - start)
            reader.read_range(first, start, left[:count])
            reader.read_range(second, start, right[:count])
            if left[:count] != right[:count]:
                return False
    return True
