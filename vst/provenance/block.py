"""Blocks of a predicate: what is known, and for everything that is not a null and the reason why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNKNOWN = "unknown"


class Block:
    """Collects one block; a value of None must come with a reason."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._unknown: dict[str, str] = {}

    def put(self, key: str, value: Any, reason: str = "nothing said so") -> Block:
        """Set ``key``; a None is kept as null and explained by ``reason``."""
        self._known[key] = value
        if value is None:
            self._unknown[key] = reason
        return self

    def to_json(self) -> dict[str, Any]:
        return {**self._known, UNKNOWN: self._unknown}


def unexplained(content: Any, where: str = "") -> Iterator[str]:
    """The dotted paths of all nulls under ``content`` that no ``unknown`` beside them explains."""
    if isinstance(content, Mapping):
        reasons = content.get(UNKNOWN)
        reasons = reasons if isinstance(reasons, Mapping) else {}
        for key, value in content.items():
            if value is None and not reasons.get(key):
                yield f"{where}{key}"
            yield from unexplained(value, f"{where}{key}.")
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from unexplained(value, f"{where}{index}.")
