"""The byte formats that layout and content digests are taken over. They are published: changing one is a new version.

Canonical order is bytewise by the UTF-8 of the tensor names, which for Python strings is their plain order.

``layout_digest``   SHA-256 of the line ``vst-layout/1`` and one line per tensor in canonical order, each a JSON array
                    ``["name","dtype",[dimensions]]`` without spaces, ASCII only (``\\uXXXX`` escapes). Every line,
                    the first and the last too, ends in ``\\n``.
``content_digest``  the same with the line ``vst-content/1`` and the arrays
                    ``["name","dtype",[dimensions],"sha256:<hex>"]``, the last being the SHA-256 of the tensor's bytes
                    as they are stored in the file.

Lines of JSON cannot run into each other, so no two layouts share a digest input. How tensors are cut into shards is in
neither digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii
from typing import Protocol, TypeVar

PREFIX = "sha256:"
LAYOUT_FORMAT = "vst-layout/1"
CONTENT_FORMAT = "vst-content/1"


class Described(Protocol):
    """What the digests need of a tensor; ``TensorEntry`` is one."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


Entry = TypeVar("Entry", bound=Described)


class Digested(Described, Protocol):
    """A tensor whose bytes may have been digested."""

    @property
    def digest(self) -> str | None: ...


def tensor_digest(data: bytes | bytearray | memoryview) -> str:
    """``sha256:<hex>`` of the bytes of one tensor, as they are stored and sent (little-endian, contiguous)."""
    return PREFIX + hashlib.sha256(data).hexdigest()


def layout_digest(entries: Iterable[Described]) -> str:
    """Digest of names, dtypes and shapes, in any order; ``sha256:<hex>``."""
    lines = (f"[{_fields(entry)}]\n" for entry in canonical(entries))
    return _digest_lines(LAYOUT_FORMAT, lines)


def combine_content_digest(entries: Iterable[Digested]) -> str | None:
    """Digest of names, dtypes, shapes and tensor digests, in any order; None unless every tensor has a digest."""
    known = list(entries)
    if any(entry.digest is None for entry in known):
        return None
    lines = (f'[{_fields(entry)},"{entry.digest}"]\n' for entry in canonical(known))
    return _digest_lines(CONTENT_FORMAT, lines)


def canonical(entries: Iterable[Entry]) -> list[Entry]:
    """The tensors in canonical order."""
    return sorted(entries, key=lambda entry: entry.name)


def _fields(entry: Described) -> str:
    return f'{encode_basestring_ascii(entry.name)},"{entry.dtype}",[{",".join(map(str, entry.shape))}]'


def _digest_lines(first: str, lines: Iterator[str]) -> str:
    digest = hashlib.sha256(f"{first}\n".encode())
    for line in lines:
        digest.update(line.encode("ascii"))
    return PREFIX + digest.hexdigest()
