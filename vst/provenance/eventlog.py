"""The event log: one JSON line after the other, each whole or not there at all, hashed while it grows.

Each line ends with a ``seal`` over itself and the line before, so that a log can be checked as far as it goes, also
that of a run that was killed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import threading
from pathlib import Path

_SEAL = re.compile(rb'(.*), "seal": "([0-9a-f]{16})"\}\n', re.DOTALL)


def _seal(before: bytes, body: bytes) -> bytes:
    return hashlib.sha256(before + body).hexdigest()[:16].encode()


def broken_line(data: bytes) -> int | None:
    """The number of the first line whose seal does not hold, None when all do."""
    before = b""
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        found = _SEAL.fullmatch(line)
        if found is None or found[2] != _seal(before, found[1]):
            return number
        before = found[2]
    return None


class EventLog:
    """Append-only; ``sealed`` gives the digest of what was written so far without reading it again."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._last = b""
        self._lock = threading.Lock()

    def append(self, content: str) -> None:
        """Write one JSON object as a sealed line; OSError when it does not fit, with nothing of it left in the file."""
        body = content.removesuffix("}").encode()
        with self._lock:
            seal = _seal(self._last, body)
            line = b'%s, "seal": "%s"}\n' % (body, seal)
            try:
                done = os.write(self._fd, line)
                if done != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.ftruncate(self._fd, self._bytes)
                raise
            self._hash.update(line)
            self._bytes += done
            self._last = seal

    def sealed(self) -> tuple[str, int]:
        """The SHA-256 and the number of the bytes written so far."""
        with self._lock:
            return self._hash.hexdigest(), self._bytes

    def close(self) -> None:
        """Flush to the disk and close; safe to repeat."""
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
