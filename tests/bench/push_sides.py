"""What a push is compared with: a sender that does one thing after the other, a bare broadcast, a bare read; and our
own sender's half of a push, with nobody who loads.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from vst.checkpoint.manifest import Manifest
from vst.server.client import ControlPlane
from vst.transfer import adapter
from vst.transfer.dtypes import torch_dtype
from vst.transfer.frames import largest_frame, plan_frames
from vst.transfer.gloo_group import Group, open_store
from vst.transfer.outgoing import Memory, Outgoing
from vst.transfer.parts import mixed, read
from vst.transfer.plan import JoinPlan, PushPlan

READ_BYTES = 16 << 20
WAIT_S = 120.0


class Client:
    """vLLM's four calls, straight to the server."""

    def __init__(self, url: str) -> None:
        self._control = ControlPlane(url, timeout_s=300)

    def init_weight_transfer_engine(self, init_info: Any) -> None:
        self._control.post("/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self._control.post("/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._control.post("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._control.post("/finish_weight_update", {"weight_version": "naive"})


def naive_sender(plan: JoinPlan, manifest: Manifest) -> float:
    """Seconds of a whole transaction, without the join."""
    meta = [adapter.Declared(t.name, torch_dtype(t.dtype), t.shape) for t in manifest.tensors]
    source = adapter.make_source(meta, lambda: read(mixed(manifest, None, ())))
    where = adapter.Rendezvous(plan.backend, plan.master_address, 0, plan.world_size, plan.bucket_bytes, plan.timeout_s)
    engine = adapter.join(where, Client(plan.members[0].base_url), source)
    begun = time.perf_counter()
    engine.send_weights()
    return time.perf_counter() - begun


def broadcast_sender(ports: Any, total: int, bucket_bytes: int) -> float:
    """Seconds to send ``total`` bytes from one warm buffer to ``broadcast_receiver``."""
    store = open_store("127.0.0.1", 0, 2, True, WAIT_S)
    ports.put(store.port)
    return _pass_on(store, 0, total, bucket_bytes)


def broadcast_receiver(ports: Any, total: int, bucket_bytes: int) -> None:
    store = open_store("127.0.0.1", ports.get(), 2, False, WAIT_S)
    _pass_on(store, 1, total, bucket_bytes)


def _pass_on(store: Any, rank: int, total: int, bucket_bytes: int) -> float:
    group = Group(store, rank, 2, "127.0.0.1", WAIT_S)
    buffer = torch.ones(bucket_bytes, dtype=torch.uint8)
    for _ in range(2):
        group.broadcast(buffer)
    begun = time.perf_counter()
    left = total
    while left > 0:
        group.broadcast(buffer[: min(left, bucket_bytes)])
        left -= bucket_bytes
    return time.perf_counter() - begun


def publishing_sender(ports: Any, plan: JoinPlan, push: PushPlan, manifest: Manifest, memory: Memory) -> float:
    """Seconds in which our publisher reads, hashes and broadcasts everything to ``publishing_receiver``."""
    store = open_store("127.0.0.1", 0, 2, True, WAIT_S)
    ports.put(store.port)
    group = Group(store, 0, 2, "127.0.0.1", WAIT_S)
    bucket = plan.bucket_bytes or 0
    begun = time.perf_counter()
    outgoing = Outgoing(push, plan, mixed(manifest, None, ()), manifest, memory, lambda done, total: None)
    for filled in outgoing.frames(bucket):
        if filled.frame.nbytes:
            group.broadcast(filled.data)
    outgoing.close()
    return time.perf_counter() - begun


def publishing_receiver(ports: Any, sizes: list[int], bucket_bytes: int) -> None:
    store = open_store("127.0.0.1", ports.get(), 2, False, WAIT_S)
    group = Group(store, 1, 2, "127.0.0.1", WAIT_S)
    buffer = torch.ones(largest_frame(sizes, bucket_bytes)[1], dtype=torch.uint8)
    for frame in plan_frames(sizes, bucket_bytes):
        if frame.nbytes:
            group.broadcast(buffer[: frame.nbytes])


def read_all(manifest: Manifest) -> float:
    """Seconds to read every shard from its beginning to its end into one warm buffer."""
    buffer = memoryview(bytearray(READ_BYTES))
    begun = time.perf_counter()
    for shard in manifest.shards:
        fd = os.open(manifest.shard_path(shard.name), os.O_RDONLY)
        offset = 0
        while count := os.preadv(fd, [buffer], offset):
            offset += count
        os.close(fd)
    return time.perf_counter() - begun
