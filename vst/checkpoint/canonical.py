"""The byte formats that layout and content digests are taken over. They are published: changing one is a new version.

Canonical order is bytewise by the UTF-8 of the tensor names, which for Python strings is their plain order.

``layout_digest``   SHA-256 of the line ``vst-layout/1`` and one line per tensor in canonical order, each a JSON array
                    ``["name","dtype",[dimensions]]`` without spaces, ASCII only (``\\uXXXX`` escapes). Every line,
                    the first and the last too, ends in ``\\n``.
``content_digest``  BLAKE3 of the same with the line ``vst-content/2`` and the arrays
                    ``["name","dtype",[dimensions],"blake3:<hex>"]``, the last being the BLAKE3 of the tensor's bytes
                    as they are stored in the file.

Lines of JSON cannot run into each other, so no two layouts share a digest input. How tensors are cut into shards is in
neither digest.

Bytes of tensors are digested with BLAKE3 because it is as strong as SHA-256 at a fraction of the work, and because one
large tensor can be hashed by several cores: with SHA-256 a fifth of a push was spent on digests. Whole files keep
SHA-256, which everybody can check with ``sha256sum``. Format 1 had SHA-256 in both places of ``content_digest``; it can
still be taken over the digests of an old manifest, and says nothing about one of format 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring_ascii
from typing import Any, Protocol, TypeVar

from blake3 import blake3

from vst.errors import VerificationError

SHA256, BLAKE3 = "sha256", "blake3"
LAYOUT_FORMAT = "vst-layout/1"
CONTENT_FORMAT = {SHA256: "vst-content/1", BLAKE3: "vst-content/2"}
"""By the algorithm of the tensors' digests."""

_HASHERS: dict[str, Callable[[], Any]] = {SHA256: hashlib.sha256, BLAKE3: blake3}


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


def spelled(algorithm: str, hasher: Any) -> str:
    """``<algorithm>:<hex>`` of what ``hasher`` was fed."""
    return f"{algorithm}:{hasher.hexdigest()}"


def algorithm_of(digest: str) -> str:
    """``sha256`` or ``blake3``: what a digest begins with. A digest of one algorithm says nothing about the other's."""
    return digest.partition(":")[0]


def tensor_hasher(threads: int = 1) -> blake3:
    """What the bytes of one tensor are fed to; with several ``threads`` they share each large piece."""
    return blake3(max_threads=threads)


def tensor_digest(data: bytes | bytearray | memoryview) -> str:
    """``blake3:<hex>`` of the bytes of one tensor, as they are stored and sent (little-endian, contiguous)."""
    return spelled(BLAKE3, blake3(data))


def layout_digest(entries: Iterable[Described]) -> str:
    """Digest of names, dtypes and shapes, in any order; ``sha256:<hex>``."""
    lines = (f"[{_fields(entry)}]\n" for entry in canonical(entries))
    return _digest_lines(SHA256, LAYOUT_FORMAT, lines)


def combine_content_digest(entries: Iterable[Digested]) -> str | None:
    """Digest of names, dtypes, shapes and tensor digests, in any order; None unless every tensor has a digest.

    Its algorithm is that of the tensors' digests; VerificationError where these have several.
    """
    known = list(entries)
    if any(entry.digest is None for entry in known):
        return None
    algorithm = _common_algorithm(known)
    lines = (f'[{_fields(entry)},"{entry.digest}"]\n' for entry in canonical(known))
    return _digest_lines(algorithm, CONTENT_FORMAT[algorithm], lines)


def _common_algorithm(entries: Iterable[Digested]) -> str:
    found = {algorithm_of(str(entry.digest)) for entry in entries} or {BLAKE3}
    if len(found) > 1 or not found <= CONTENT_FORMAT.keys():
        wanted = " or ".join(sorted(CONTENT_FORMAT))
        raise VerificationError(
            f"tensors have digests of {' and '.join(sorted(found))}, expected one of {wanted} for all of them: "
            "digest the checkpoint again"
        )
    return found.pop()


def canonical(entries: Iterable[Entry]) -> list[Entry]:
    """The tensors in canonical order."""
    return sorted(entries, key=lambda entry: entry.name)


def _fields(entry: Described) -> str:
    return f'{encode_basestring_ascii(entry.name)},"{entry.dtype}",[{",".join(map(str, entry.shape))}]'


def _digest_lines(algorithm: str, first: str, lines: Iterator[str]) -> str:
    digest = _HASHERS[algorithm]()
    digest.update(f"{first}\n".encode())
    for line in lines:
        digest.update(line.encode("ascii"))
    return spelled(algorithm, digest)
