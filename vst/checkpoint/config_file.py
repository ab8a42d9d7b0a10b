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
from vst.checkpoint.regular import bounded, read_small
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
        raise VerificationError(f"{path}: not JSON: {bounded(str(error))}") from error
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
    stated = _tied_flags(config)
    return stated[0] if stated else None


def _tied_flags(config: dict[str, Any]) -> list[bool]:
    text = config.get("text_config")
    places = [config, text if isinstance(text, dict) else {}]
    return [place[TIE_KEY] for place in places if isinstance(place.get(TIE_KEY), bool)]


def check_tied(where: str, manifest: Manifest, config: dict[str, Any], allowed: bool, found: Findings) -> None:
    """The tied flag and the head tensor must tell the same story; ``allowed`` turns the mismatch into a warning.

    Of several heads the one with the shortest name is the model's own; the others belong to draft layers.
    """
    tied = tied_flag(config)
    if len(set(_tied_flags(config))) > 1:
        found.warnings.append(f"{where}: {TIE_KEY} is {tied} in {CONFIG_NAME} and {not tied} in its text_config")
    head = min(_matrices(manifest, "head"), key=lambda entry: len(entry.name), default=None)
    if head is None:
        if tied is False:
            found.complain(f"{where}: {TIE_KEY} is false but there is no head tensor", allowed)
        elif tied is None:
            found.warnings.append(f"{where}: no head tensor and {CONFIG_NAME} does not say {TIE_KEY}; taken as tied")
    elif tied:
        _check_copy(where, manifest, head, allowed, found)


def _check_copy(where: str, manifest: Manifest, head: TensorEntry, allowed: bool, found: Findings) -> None:
    embeddings = _matrices(manifest, "embedding")
    copied = next((entry for entry in embeddings if same_bytes(manifest, head, entry)), None)
    if copied:
        found.warnings.append(f"{where}: {TIE_KEY} is true and {head.name!r} is a copy of {copied.name!r}")
        return
    names = ", ".join(repr(entry.name) for entry in embeddings) or "every embedding, of which there is none"
    found.complain(f"{where}: {TIE_KEY} is true but {head.name!r} in {head.shard!r} differs from {names}", allowed)


def _matrices(manifest: Manifest, wanted: str) -> list[TensorEntry]:
    return [entry for entry in manifest.tensors if len(entry.shape) == 2 and family(entry.name) == wanted]


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
