"""JSON in which nothing is left to the reader's taste: one value per key, no NaN, valid UTF-8, bounded nesting."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {key!r}")
            seen.add(key)
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``; raises ``ValueError`` with a short reason for anything else.

    Refused: other top-level values, duplicate keys at any depth, NaN and Infinity, invalid UTF-8, integers beyond the
    interpreter's digit limit and nesting beyond its recursion limit.
    """
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {type(value).__name__}")
    return value


def is_text(value: object) -> bool:
    """Whether ``value`` is a string that UTF-8 can encode (JSON escapes can smuggle in lone surrogates)."""
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
