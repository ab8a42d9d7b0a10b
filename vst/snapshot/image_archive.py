"""The files of a container image, read the same way from a directory and from a tar archive."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from vst.errors import VerificationError


class ImageFiles(Protocol):
    """What an image is made of, by name relative to its root."""

    def has(self, name: str) -> bool:
        """True when there is a file of that name."""

    def read(self, name: str) -> bytes:
        """All bytes of a small file."""

    def sha256(self, name: str) -> str:
        """The SHA-256 of a file of any size."""


class DirectoryImage:
    """An unpacked OCI layout or ``docker save`` directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has(self, name: str) -> bool:
        return (self._root / name).is_file()

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def sha256(self, name: str) -> str:
        with open(self._root / name, "rb") as handle:
            return _digest(handle)


class ArchiveImage:
    """A tar archive, compressed or not; nothing is unpacked. VerificationError when the file is no tar archive."""

    def __init__(self, path: Path) -> None:
        try:
            self._tar = tarfile.open(path)  # noqa: SIM115 - closed by __exit__
        except tarfile.TarError as error:
            raise VerificationError(
                f"{path} is neither a tar archive nor a squashfs or SIF file; give the image itself"
            ) from error
        self._members = {member.name.removeprefix("./"): member for member in self._tar if member.isfile()}

    def __enter__(self) -> ArchiveImage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()

    def has(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        with self._open(name) as handle:
            return handle.read()

    def sha256(self, name: str) -> str:
        with self._open(name) as handle:
            return _digest(handle)

    def _open(self, name: str) -> IO[bytes]:
        handle = self._tar.extractfile(self._members[name]) if name in self._members else None
        if handle is None:
            raise VerificationError(f"the image archive lacks {name}, which it refers to; save it again")
        return handle


def _digest(handle: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := handle.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
