"""One data-parallel replica of the double: the weights of its ranks, what is derived from them, and the KV memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from vst.selftest import tamper
from vst.selftest.arena import Arena
from vst.selftest.decoder import FREQUENCIES, Past, Shape, derive, forward, frequencies
from vst.selftest.fault import Fault
from vst.selftest.prefix_cache import PrefixCache
from vst.selftest.weights import RankWeights, assemble, cut

TAGS = ("weights", "kv_cache")
CACHED_BLOCKS = 4096
MIB = 1 << 20


class Broken(Exception):
    """The server did what it was told and it did not work; the route answers 500."""


@dataclass(frozen=True)
class Memory:
    """The least bytes that weights (of each rank) and KV cache take, and the blocks that the prefix cache keeps."""

    weights: int
    kv_cache: int
    blocks: int


class Replica:
    """Everything that an update, a sleep or a wake changes. The caller holds the engine's lock."""

    def __init__(
        self,
        number: int,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        ranks: int,
        memory: Memory,
        faults: Sequence[Fault],
    ) -> None:
        self.number, self.shape, self._faults = number, shape, tuple(faults)
        self.ranks = [RankWeights(tensors, ranks, rank, memory.weights) for rank in range(ranks)]
        self.kv = Arena(memory.kv_cache)
        self.cache = PrefixCache(memory.blocks)
        self.runtime: dict[str, Tensor] = {}
        self.updates = 0
        self.served = 0
        self.open = False
        self.torn = False
        self.level = 0
        self.late: dict[str, Tensor] | None = None
        self._leaked: list[bytearray] = []
        self._woken: list[str] = []
        self._asleep: set[str] = set()
        self._derive()

    @property
    def asleep(self) -> tuple[str, ...]:
        """The tags that sleep, whether or not their memory was really given back."""
        return tuple(tag for tag in TAGS if tag in self._asleep)

    @property
    def bytes_held(self) -> int:
        return sum(rank.arena.bytes_held for rank in self.ranks) + self.kv.bytes_held

    def forward(self, tokens: Sequence[int], past: Past) -> tuple[Tensor, Past]:
        return forward(self.runtime, self.shape, tokens, past)

    def unusable(self) -> str | None:
        """Why a step would kill the engine now; None when it would not."""
        if self.open or self.torn:
            return "a request reached the model while an update was open or after one had failed"
        if self.asleep:
            return f"a request reached the model while {' and '.join(self.asleep)} were asleep"
        return None

    def due(self, kind: str, number: int | None = None) -> list[Fault]:
        """The faults of a kind that are there for this update, or for the ``number``-th occurrence."""
        count = self.updates if number is None else number
        return [
            f
            for f in self._faults
            if f.kind == kind and f.due(count) and f.replica in (None, self.number) and self.served >= f.after
        ]

    def _of_weights(self, rank: int) -> list[Fault]:
        kinds = ("stale", "scale_lost", "zero", "squeeze", "noise", "nan")
        return [f for kind in kinds for f in self.due(kind) if f.at(rank, self.number)]

    def start(self) -> None:
        if self.open:
            raise Broken("a weight update is open already")
        self.updates += 1
        self.open = True

    def load(self, rank: int, name: str, value: Tensor) -> None:
        """One tensor of the broadcast, as it reached one rank."""
        weights = self.ranks[rank]
        part = tamper.received(self._of_weights(rank), name, cut(value, len(self.ranks), rank))
        if part is not None:
            weights.load(name, part)

    def tear(self) -> None:
        """An update failed on the way: it counts as closed, and the model is half changed."""
        self.open, self.torn = False, True

    def finish(self) -> None:
        if not self.open:
            raise Broken("no weight update is open")
        for fault in self.due("swap"):
            for rank in self.ranks:
                if fault.at(rank.rank, self.number):
                    tamper.swap(fault, rank)
        for fault in self.due("leak"):
            self._leaked.append(bytearray(round(fault.amount * MIB)))
            self._leaked[-1][:: 4096] = b"\1" * len(self._leaked[-1][:: 4096])
        self.open = self.torn = False
        self._finalise()

    def _finalise(self) -> None:
        lies = self.due("finish_lies")
        if not lies:
            self._derive()
        elif lies[0].seconds is not None:
            timer = threading.Timer(lies[0].seconds, self._derive)
            timer.daemon = True
            timer.start()

    def _derive(self) -> None:
        """Recompute what the forward pass reads; stale buffers and late content are left behind here."""
        fresh = derive({name: assemble(self.ranks, name) for name in self.ranks[0].names})
        # Made once, when the server starts: no update brings it back.
        fresh[FREQUENCIES] = self.runtime.get(FREQUENCIES, frequencies(self.shape))
        stale = [fault for fault in self.due("stale") if fault.of == "buffer"]
        for name in list(fresh):
            if self.runtime and any(fault.hits(name) for fault in stale):
                fresh[name] = self.runtime[name]
        if self.updates and self.due("late"):
            self.late, fresh = fresh, self.late or self.runtime
        self.runtime = fresh

    def disturb(self, fault: Fault) -> None:
        """Change the content outside of any update."""
        for rank in self.ranks:
            tamper.disturb(fault, rank)
        self._derive()

    def sleep(self, level: int) -> None:
        """Give memory back: level 1 keeps the weights in a file, level 2 keeps nothing."""
        kept = {tag for f in self._faults if f.kind == "sleep_frees_nothing" and level in (f.levels or (1, 2))
                for tag in f.tags or TAGS}  # fmt: skip
        self.level, self._woken, self._asleep = level, [], set(TAGS)
        self.cache_clear()
        if "kv_cache" not in kept:
            self.kv.drop(keep=False)
        if "weights" not in kept:
            for rank in self.ranks:
                rank.arena.drop(keep=level == 1)
            self.runtime = {FREQUENCIES: self.runtime[FREQUENCIES]}

    def release_cache(self) -> None:
        """Give the cache's memory back and keep the weights."""
        self._asleep = {"kv_cache"}
        self.kv.drop(keep=False)

    def wake(self, tags: Sequence[str]) -> None:
        """Map the memory of ``tags`` again; after level 2 the weights are noise until they are pushed."""
        for tag in tags:
            self._asleep.discard(tag)
            if tag == "kv_cache" and not self.kv.resident:
                self.kv.make()
            if tag == "weights" and not all(rank.arena.resident for rank in self.ranks):
                self._wake_weights()
            self._woken.append(tag)
        for fault in self._faults:
            if fault.kind == "wake_order" and tuple(self._woken[-len(fault.tags) :]) == fault.tags:
                for rank in self.ranks:
                    rank.fill_with_noise(rank.names)
                self._derive()

    def _wake_weights(self) -> None:
        lost = [f for f in self._faults if f.kind == "wake_restores_nothing" and self.level in (f.levels or (1, 2))]
        for rank in self.ranks:
            kept = rank.arena.restore()
            rank.fill_with_noise(n for n in rank.names if not kept or any(f.hits(n) for f in lost))
        self._derive()
        if any(fault.hits(FREQUENCIES) for fault in lost):
            self.runtime[FREQUENCIES] = self.runtime[FREQUENCIES].flip(0)

    def cache_clear(self) -> None:
        """Empty the prefix cache, unless that is what this server only says that it does."""
        if not self.due("cache_kept"):
            self.cache.clear()
