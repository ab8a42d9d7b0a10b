"""Memory that is really there and really goes away: an anonymous mapping, the double's stand-in for a device's pool."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable
from typing import IO, cast

import torch
from torch import Tensor

ALIGNMENT = 64
PAGE = 4096


class Arena:
    """``nbytes`` of memory of one tag, touched when it is made; ``drop`` gives every page back to the system."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = max(nbytes, PAGE)
        self._memory: Tensor | None = None
        self._kept: IO[bytes] | None = None
        self._used = 0
        self.make()

    @property
    def resident(self) -> bool:
        return self._memory is not None

    @property
    def bytes_held(self) -> int:
        return self.nbytes if self._memory is not None else 0

    def make(self) -> None:
        """Map fresh memory; its pages are touched, or they would be there in name only."""
        self._memory = torch.frombuffer(mmap.mmap(-1, self.nbytes), dtype=torch.uint8)
        self._memory[::PAGE] = 0

    def drop(self, keep: bool) -> None:
        """Give the memory back; with ``keep`` its bytes wait in a file, which is not memory."""
        if self._memory is None:
            return
        if keep:
            # It is closed when the bytes come back, or with the process.
            self._kept = cast(IO[bytes], tempfile.TemporaryFile(prefix="vst-scripted-"))  # noqa: SIM115
            self._kept.write(memoryview(self._memory.numpy()))
        self._memory = None

    def restore(self) -> bool:
        """Map the memory again with the bytes that were kept; False when none were, and then it holds noise."""
        self.make()
        kept, self._kept = self._kept, None
        if kept is None or self._memory is None:
            return False
        kept.seek(0)
        kept.readinto(memoryview(self._memory.numpy()))  # type: ignore[attr-defined]
        kept.close()
        return True

    def forget(self) -> None:
        """Lose what was kept."""
        self._kept = None

    def view(self, offset: int, dtype: torch.dtype, shape: Iterable[int]) -> Tensor:
        """A tensor of the arena; RuntimeError while its memory is not there."""
        if self._memory is None:
            raise RuntimeError("this memory was given back: the server is asleep")
        size = torch.Size(shape)
        nbytes = size.numel() * dtype.itemsize
        return self._memory[offset : offset + nbytes].view(dtype).view(size)


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
