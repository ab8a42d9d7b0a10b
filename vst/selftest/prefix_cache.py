"""A small prefix cache: keys and values of full blocks by the tokens before and in them. It can be stale."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

from vst.selftest.decoder import Past

BLOCK = 16


class PrefixCache:
    """Full blocks of ``BLOCK`` tokens, the least recently used of ``capacity`` thrown out first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[tuple[int, ...], Past] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def longest(self, tokens: Sequence[int]) -> Past:
        """Keys and values of the longest cached prefix that leaves at least one token to compute."""
        found: list[Past] = []
        for end in range(BLOCK, len(tokens), BLOCK):
            block = self._blocks.get(tuple(tokens[:end]))
            if block is None:
                break
            self._blocks.move_to_end(tuple(tokens[:end]))
            found.append(block)
        return join(found)

    def keep(self, tokens: Sequence[int], past: Past) -> None:
        """Store every full block of a computed sequence."""
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            block = tuple((k[:, end - BLOCK : end].clone(), v[:, end - BLOCK : end].clone()) for k, v in past)
            self._blocks.setdefault(tuple(tokens[:end]), block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        self._blocks.clear()


def join(blocks: Sequence[Past]) -> Past:
    """One sequence of keys and values from its blocks; empty from none."""
    if not blocks:
        return ()
    return tuple(
        (torch.cat([block[layer][0] for block in blocks], 1), torch.cat([block[layer][1] for block in blocks], 1))
        for layer in range(len(blocks[0]))
    )


def length(past: Past) -> int:
    """How many tokens keys and values are there for."""
    return int(past[0][0].shape[1]) if past else 0
