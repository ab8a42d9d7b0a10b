"""Memory that is made once and used again: a new buffer costs more in page faults than the read that fills it."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

PAGE = 1 << 21
"""The size of a huge page on x86 and on most ARM kernels."""


def slab(nbytes: int) -> mmap.mmap:
    """``nbytes`` of anonymous memory, in huge pages where the kernel gives them and they would be filled."""
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= PAGE:
        # A kernel without huge pages refuses; then ordinary ones do.
        with suppress(OSError, AttributeError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class Ring:
    """``slots`` buffers of ``nbytes`` each, as torch tensors of bytes; page-locked where a GPU copies from them."""

    def __init__(self, slots: int, nbytes: int, pinned: bool = False) -> None:
        import torch

        self.nbytes = nbytes
        self.pinned = pinned
        if pinned:
            whole = torch.empty(slots * nbytes, dtype=torch.uint8, pin_memory=True)
        else:
            whole = torch.frombuffer(slab(slots * nbytes), dtype=torch.uint8)
        self.slots: tuple[Any, ...] = tuple(whole[at * nbytes : (at + 1) * nbytes] for at in range(slots))

    @property
    def total_bytes(self) -> int:
        return len(self.slots) * self.nbytes

    def holds(self, slots: int, nbytes: int, pinned: bool) -> bool:
        """Whether this ring will do where one of ``slots`` times ``nbytes`` is asked for."""
        return len(self.slots) == slots and self.nbytes >= nbytes and self.pinned == pinned
