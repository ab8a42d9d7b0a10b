"""The weights that one rank holds: its slice of every tensor of the checkpoint, in an arena of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vst.selftest.arena import Arena, aligned


@dataclass(frozen=True)
class Slot:
    """Where a tensor's slice lies in the arena."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]


def cut(value: Tensor, ranks: int, rank: int) -> Tensor:
    """A rank's slice along the first dimension; a tensor that cannot be cut evenly is held whole by every rank."""
    if ranks == 1 or value.ndim == 0 or value.shape[0] % ranks:
        return value
    return value.chunk(ranks)[rank]


class RankWeights:
    """One rank's parameters; ``load`` overwrites in place, as an update does."""

    def __init__(self, tensors: Mapping[str, Tensor], ranks: int, rank: int, least: int) -> None:
        self.ranks, self.rank = ranks, rank
        self._slots: dict[str, Slot] = {}
        self.sliced = {name for name, value in tensors.items() if cut(value, ranks, rank) is not value}
        offset = 0
        for name, value in tensors.items():
            part = cut(value, ranks, rank)
            self._slots[name] = Slot(offset, part.dtype, tuple(part.shape))
            offset += aligned(part.numel() * part.element_size())
        self.arena = Arena(max(offset, least))
        for name, value in tensors.items():
            self.load(name, cut(value, ranks, rank))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._slots)

    def get(self, name: str) -> Tensor:
        slot = self._slots[name]
        return self.arena.view(slot.offset, slot.dtype, slot.shape)

    def load(self, name: str, part: Tensor) -> None:
        """Overwrite one parameter; KeyError for a name that the model does not have, ValueError for another shape."""
        slot = self._slots[name]
        if slot.dtype != part.dtype or slot.shape != tuple(part.shape):
            raise ValueError(f"{name} is {slot.dtype} {list(slot.shape)}, sent was {part.dtype} {list(part.shape)}")
        self.get(name).copy_(part)

    def fill_with_noise(self, names: Iterable[str]) -> None:
        """What memory holds after its contents were discarded: anything, but the same at every run."""
        for name in names:
            value = self.get(name)
            generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"))
            value.copy_(torch.rand(value.shape, generator=generator).to(value.dtype))

    def checksum(self, name: str) -> str:
        raw = self.get(name).contiguous().reshape(-1).view(torch.uint8)
        return hashlib.sha256(memoryview(raw.numpy())).hexdigest()


def assemble(ranks: Sequence[RankWeights], name: str) -> Tensor:
    """The whole tensor from the slices of all ranks."""
    if name not in ranks[0].sliced:
        return ranks[0].get(name)
    return torch.cat([rank.get(name) for rank in ranks])
