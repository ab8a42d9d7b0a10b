"""Opening regular files only: a FIFO, a device or a directory in a checkpoint is an error and never a hang."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vst.errors import VerificationError

OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def describe(error: OSError | ValueError) -> str:
    """One short phrase for an error of the operating system (``ValueError`` is what a NUL in a path raises)."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def open_fd(path: Path) -> int:
    """A read-only descriptor of a regular file, which the caller closes.

    Raises ``VerificationError`` with the path if it cannot be opened or is something else than a regular file.
    """
    try:
        fd = os.open(path, OPEN_FLAGS)
    except (OSError, ValueError) as error:
        raise VerificationError(f"{path}: cannot be opened: {describe(error)}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise VerificationError(f"{path}: expected a regular file, found something else")
    return fd


def bounded(text: str, limit: int = 1000) -> str:
    """The text, cut if it is longer: a hostile file must not fill the log through the names in it."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


@contextmanager
def open_regular(path: Path) -> Iterator[int]:
    """``open_fd`` that closes the descriptor at the end of the block."""
    fd = open_fd(path)
    try:
        yield fd
    finally:
        os.close(fd)


def read_at(fd: int, buffer: memoryview, offset: int) -> int:
    """Fill ``buffer`` from byte ``offset`` on; returns the bytes read, fewer than asked only at the end of the file."""
    done = 0
    while done < len(buffer):
        count = os.preadv(fd, [buffer[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def read_vector(fd: int, buffers: list[memoryview], offset: int) -> int:
    """As ``read_at`` for neighbouring bytes of the file that go to several ``buffers``, at most 1024 of them."""
    done, left = 0, buffers
    while left:
        count = os.preadv(fd, left, offset + done)
        if count == 0:
            break
        done += count
        left = _after(left, count)
    return done


def _after(buffers: list[memoryview], count: int) -> list[memoryview]:
    """What remains of ``buffers`` once their first ``count`` bytes are there."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []


def read_small(path: Path, limit: int) -> bytes:
    """The whole content of a regular file of at most ``limit`` bytes; ``VerificationError`` if it is larger."""
    with open_regular(path) as fd:
        size = os.fstat(fd).st_size
        if size > limit:
            raise VerificationError(f"{path}: {size} bytes, expected at most {limit}")
        content = bytearray(size)
        try:
            done = read_at(fd, memoryview(content), 0)
        except OSError as error:
            raise VerificationError(f"{path}: cannot be read: {describe(error)}") from error
    return bytes(content[:done])
