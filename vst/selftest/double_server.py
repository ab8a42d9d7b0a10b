"""The double as a whole: its replicas and engines, its label and its flags, and what each control call does to them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import psutil

from vst.selftest.breaking import Breaking
from vst.selftest.checkpoint import Checkpoint
from vst.selftest.engine import MODES, Engine
from vst.selftest.generation import BadRequest
from vst.selftest.options import Options
from vst.selftest.replica import CACHED_BLOCKS, TAGS, Broken, Memory, Replica
from vst.selftest.transfer import Receiver

EXIT_AFTER_S = 0.5
EXIT_DEAD = 70


class Double:
    """One scripted server; every method is a control call of vLLM's development routes.

    ``on_death`` is called when an engine died; as in vLLM, a process that serves is then gone soon.
    """

    def __init__(self, options: Options, checkpoint: Checkpoint, on_death: Callable[[str], None]) -> None:
        self.options, self.checkpoint, self._died = options, checkpoint, on_death
        memory = Memory(options.weights_bytes, options.kv_bytes, CACHED_BLOCKS if options.prefix_caching else 0)
        self.replicas = [
            Replica(number, checkpoint.shape, checkpoint.tensors, options.ranks, memory, options.faults)
            for number in range(options.replicas)
        ]
        self.engines = [Engine(replica, options.faults, self._died, options.step_s) for replica in self.replicas]
        self.receiver = Receiver(self.replicas)
        self.breaking = Breaking(options.faults, lambda: self.served, lambda: self.replicas[0].updates)
        self.label = "default"
        self.gauge = (0, 0)
        self.instance_id = uuid4().hex[:5]
        self.moves: list[str] = []
        self._started = psutil.Process().create_time()
        self._next = 0
        self._fired: set[int] = set()

    @property
    def served(self) -> int:
        return sum(replica.served for replica in self.replicas)

    @property
    def world_size(self) -> int:
        return self.options.ranks * self.options.replicas

    @property
    def dead(self) -> str | None:
        return next((engine.dead for engine in self.engines if engine.dead), None)

    @property
    def start_time(self) -> float:
        moved = any(fault.kind == "restart" and self.served >= fault.after for fault in self.options.faults)
        return self._started + (3600.0 if moved else 0.0)

    def pick(self, rank: str | None) -> Engine:
        """The engine of a data-parallel rank, or the least busy one."""
        if rank is not None:
            if not rank.isdigit() or int(rank) >= len(self.engines):
                raise BadRequest(f"data_parallel_rank {rank} is out of range [0, {len(self.engines)})")
            return self.engines[int(rank)]
        self._next += 1
        order = [self.engines[(self._next + i) % len(self.engines)] for i in range(len(self.engines))]
        return min(order, key=lambda engine: len(engine.running) + len(engine.waiting))

    def between_requests(self) -> None:
        """What somebody else does to this server behind the caller's back, once, when its time has come."""
        for number, fault in enumerate(self.options.faults):
            mine = fault.kind in ("label_moves", "foreign_update")
            if mine and number not in self._fired and self.served >= fault.after:
                self._fired.add(number)
                self.label = fault.label
                for engine in self.engines if fault.kind == "foreign_update" else ():
                    with engine.call():
                        engine.replica.disturb(fault)

    @contextmanager
    def _all_held(self) -> Iterator[None]:
        with ExitStack() as stack:
            for engine in self.engines:
                stack.enter_context(engine.call())
            yield

    def _moved(self, move: str) -> None:
        """Remember a move; a fault of order strikes when its moves have come one after the other, with others between.
        """
        self.moves.append(move)
        for fault in self.options.faults:
            if fault.kind == "order" and _in_order(fault.moves, self.moves):
                self.moves = []
                for replica in self.replicas:
                    if not replica.asleep:
                        replica.disturb(fault)

    def pause(self, mode: str, clear_cache: bool) -> dict[str, Any]:
        if mode not in MODES:
            raise BadRequest(f"Invalid pause mode: {mode}")
        for engine in self.engines:
            engine.pause(mode)
            if clear_cache and mode != "keep":
                engine.reset_cache(running_too=True)
        self._moved("pause")
        return {"status": "paused"}

    def resume(self) -> dict[str, Any]:
        for engine in self.engines:
            with engine.call():
                engine.resume()
        self._moved("resume")
        return {"status": "resumed"}

    def paused(self) -> bool:
        with self._all_held():
            return any(engine.paused is not None or engine.claimed is not None for engine in self.engines)

    def abort_all(self) -> dict[str, Any]:
        found = [(engine, one) for engine in self.engines for one in (*engine.running, *engine.waiting)]
        for engine, generation in found:
            engine.abort(generation)
        return {"status": "aborted", "aborted": len(found)}

    def reset_prefix_cache(self, running_too: bool) -> dict[str, Any]:
        if any(replica.due("cache_refuses", max(1, replica.updates)) for replica in self.replicas):
            return {"success": False}
        done = [engine.reset_cache(running_too) for engine in self.engines]
        self._moved("reset")
        return {"success": all(done)}

    def init_transfer(self, info: Mapping[str, Any]) -> dict[str, Any]:
        with self._all_held():
            self.receiver.join(info)
        return {"message": "Weight transfer initialized"}

    def start_update(self) -> dict[str, Any]:
        with self._all_held():
            for replica in self.replicas:
                replica.start()
        return {"message": "Weight update started"}

    def update(self, info: Mapping[str, Any]) -> dict[str, Any]:
        with self._all_held():
            number = self.replicas[0].updates
            if not all(replica.open for replica in self.replicas):
                raise Broken("no weight update is open: call /start_weight_update first")
            try:
                self.receiver.receive(info, lambda bucket: self.breaking.bucket(number, bucket))
            except BaseException:
                for replica in self.replicas:
                    replica.tear()
                raise
        return {"message": "Weights updated"}

    def finish(self, label: str | None) -> dict[str, Any]:
        with self._all_held():
            for replica in self.replicas:
                replica.finish()
        kept = any(replica.due("label_kept") for replica in self.replicas)
        if label is not None and not kept:
            self.label = label
        self._moved("update")
        return {"message": "Weight update finished"}

    def sleep(self, level: int, mode: str) -> dict[str, Any]:
        if level not in (0, 1, 2) or mode not in MODES:
            raise BadRequest(f"sleep level {level} or mode {mode} is unknown")
        self.pause(mode, clear_cache=level > 0)
        if level:
            for engine in self.engines:
                with engine.call():
                    engine.reset_cache(running_too=True)
                    engine.replica.sleep(level)
        self.gauge = (1, level)
        self._moved("sleep")
        return {"status": "sleeping", "level": level}

    def wake(self, tags: list[str] | None) -> dict[str, Any]:
        wanted = list(TAGS) if tags is None else [tag for tag in tags if tag != "scheduling"]
        if unknown := set(wanted) - set(TAGS):
            raise BadRequest(f"unknown tags: {sorted(unknown)}")
        with self._all_held():
            for replica in self.replicas:
                replica.wake(wanted)
        awake = not any(replica.asleep for replica in self.replicas)
        if awake:
            for engine in self.engines:
                engine.resume()
            self.gauge = (0, 0)
        self._moved("wake")
        return {"status": "awake" if awake else "sleeping", "tags": tags}

    def release_kv(self) -> dict[str, Any]:
        if not self.paused() or any(engine.running or engine.waiting for engine in self.engines):
            raise Broken("release_kv_cache_memory() requires a completed pause first")
        with self._all_held():
            for replica in self.replicas:
                replica.cache_clear()
                replica.kv.drop(keep=False)
        self.gauge = (1, 0)
        return {"status": "kv_cache_released"}

    def sleeping(self) -> bool:
        """vLLM's own rule: also a server that is only paused says so."""
        return self.paused() or any(replica.asleep for replica in self.replicas)

    def state(self) -> str:
        if any(replica.asleep for replica in self.replicas):
            return "asleep"
        return "paused" if any(engine.paused for engine in self.engines) else "awake"

    def say(self, flag: str, truth: bool) -> bool:
        """A flag as this server tells it."""
        for fault in self.options.faults:
            if fault.kind == "flag_lies" and fault.flag == flag and self.state() in (fault.states or (self.state(),)):
                return fault.value
        return truth

    def checksums(self) -> dict[str, str]:
        with self._all_held():
            return {
                f"dp{replica.number}:pp0:pcp0:tp{rank.rank}:{name}": rank.checksum(name)
                for replica in self.replicas
                for rank in replica.ranks
                for name in rank.names
            }


def exit_soon(reason: str) -> None:
    """503 on ``/health`` for a moment, then the process is gone."""
    print(f"engine died: {reason}", flush=True)
    threading.Timer(EXIT_AFTER_S, lambda: os._exit(EXIT_DEAD)).start()


def _in_order(wanted: tuple[str, ...], moves: list[str]) -> bool:
    """Whether the wanted moves are among the moves in this order."""
    rest = iter(moves)
    return bool(wanted) and all(move in rest for move in wanted)
