"""What only GPUs can show: ``pytest tests/gpu``. One for staging, two for a push over the real NCCL."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.tiny import make_tiny_pair
from vst.checkpoint.writer import write_safetensors
from vst.oracle.compare import difference
from vst.oracle.probes import make_probes
from vst.oracle.record import take_record
from vst.server.client import ControlPlane
from vst.server.launch import ServerSpec, command, environment
from vst.server.process import ServerProcess, free_port
from vst.transfer.ledger import torch_digest
from vst.transfer.outgoing import Memory, Outgoing
from vst.transfer.parts import mixed
from vst.transfer.plan import JoinPlan, Member, PushPlan
from vst.transfer.publisher import Deadlines, Publisher

MIB = 1 << 20


@pytest.mark.gpu(1)
@pytest.mark.parametrize("staging", ["tensor", "pipelined"])
def test_staging_puts_every_byte_on_the_gpu_and_its_rate_is_told(tmp_path: Path, staging: str) -> None:
    import torch

    tensors = {f"t{number:03d}": ("U8", (16 * MIB + number,), os.urandom(16 * MIB + number)) for number in range(64)}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    manifest = with_digests(read_manifest(tmp_path), None)
    members = (Member("http://a", 1),)
    where = JoinPlan("l", members, None, "nccl", "127.0.0.1", 0, None, "cuda:0", 9.0, 9.0, staging=staging)
    memory, rates = Memory(), []
    for round_ in range(4):
        out = Outgoing(PushPlan("m", None), where, mixed(manifest, None, ()), manifest, memory, lambda *_: None)
        begun = time.perf_counter()
        for number, (name, tensor) in enumerate(out.pairs()):
            if round_ == 0:
                assert tensor.is_cuda and torch_digest(tensor.cpu()) == manifest.by_name[name].digest
            elif number == len(tensors) - 1:
                torch.cuda.synchronize()
        rates.append(manifest.total_bytes / (time.perf_counter() - begun))
        assert out.close().content_digest == manifest.content_digest
    print(f"{staging}: {statistics.median(rates[1:]) / 1e9:.2f} GB/s; a pinned copy {pinned_rate() / 1e9:.2f} GB/s")


def pinned_rate() -> float:
    """Bytes a second of copies from page-locked memory to the GPU: what staging cannot exceed."""
    import torch

    source = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(source, device="cuda:0")
    seconds = []
    for _ in range(6):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return source.numel() / statistics.median(seconds[1:])


@pytest.mark.gpu(2)
@pytest.mark.parametrize("staging", ["tensor", "pipelined"])
def test_the_real_nccl_takes_a_server_from_a_to_b_and_back(tmp_path: Path, staging: str) -> None:
    """GPU 0 serves, GPU 1 sends; records are compared with a cold start of each checkpoint."""
    pair = dict(zip("ab", make_tiny_pair(tmp_path / "tiny"), strict=True))
    for role, path in pair.items():
        (tmp_path / role).write_text(json.dumps(with_digests(read_manifest(path), None).to_json()))
    probes = make_probes(320, 8, 4, 192, 8, 5, 20260101)
    spec = ServerSpec("gpu", "nccl", 1, 1, 1, 512, None, ("--enforce-eager", "--gpu-memory-utilization", "0.3"))

    def serve(role: str) -> tuple[ServerProcess, ControlPlane]:
        port = free_port("127.0.0.1")
        env = {**environment(spec, os.environ), "CUDA_VISIBLE_DEVICES": "0"}
        process = ServerProcess(command(spec, pair[role], "127.0.0.1", port, "tiny"), env, tmp_path / f"{role}.log")
        control = ControlPlane(f"http://127.0.0.1:{port}", timeout_s=120)
        process.wait_ready(control, 600)
        return process, control

    cold: dict[str, Any] = {}
    server, control = serve("b")
    cold["b"] = [take_record(control, "tiny", probes, "b", 60) for _ in range(2)]
    server.stop()
    server, control = serve("a")
    publisher = Publisher(Deadlines(300, 120, 60, 60, 60, 1e6), tmp_path / "publisher.log", lambda report: None)
    try:
        cold["a"] = [take_record(control, "tiny", probes, "a", 60) for _ in range(2)]
        publisher.start({**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
        members = (Member(control.base_url, 1),)
        plan = (str(tmp_path / "a"), members, None, "nccl", "127.0.0.1", 0, None, "cuda:0", 60.0, 60.0)
        publisher.join(JoinPlan(*plan, staging=staging))
        for role in ("b", "a"):
            control.post("/pause", params={"mode": "keep"})
            publisher.push(PushPlan(str(tmp_path / role), role), 902912)
            control.post("/reset_prefix_cache")
            control.post("/resume")
            floor = difference(*cold[role], 0.0).largest or 0.0
            assert difference(take_record(control, "tiny", probes, role, 60), cold[role][0], floor).equal
    finally:
        publisher.stop()
        server.stop()
