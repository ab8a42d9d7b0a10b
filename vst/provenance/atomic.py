"""Files that are either the old one or the whole new one, also when the machine stops in between."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vst.errors import TransportError


class StorageFailure(TransportError):
    """The run directory cannot be written (disk full, quota, file limit); what was written until then is whole."""


@contextmanager
def staged(path: Path, data: bytes) -> Iterator[None]:
    """Lay ``data`` down beside ``path``, flushed to the disk; it takes the name when the block ends without error."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        yield
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomic(path: Path, data: bytes) -> None:
    """Write to a temporary file of the same directory, flush it to the disk, rename it over ``path``."""
    with staged(path, data):
        pass


def file_sha256(path: Path, length: int | None = None) -> str:
    """The hexadecimal SHA-256 of a file, read in pieces; with ``length`` of its first bytes only."""
    digest = hashlib.sha256()
    left = length
    with path.open("rb") as file:
        while chunk := file.read(1 << 20 if left is None else min(1 << 20, left)):
            digest.update(chunk)
            left = None if left is None else left - len(chunk)
    return digest.hexdigest()
