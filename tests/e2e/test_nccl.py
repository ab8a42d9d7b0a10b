"""``transfer=nccl`` as far as a machine without GPUs can show it: vLLM's own NCCL engines, both ends, packed.

Only the communicator and the stream calls are replaced (``nccl_standin``); adapter, child and vLLM's code are real.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.conftest import Live, Run, default_spec
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import read_manifest
from vst.oracle.compare import difference
from vst.oracle.probes import make_probes
from vst.oracle.record import Record, take_record
from vst.server.client import ControlPlane
from vst.server.launch import command, environment
from vst.server.process import ServerProcess
from vst.transfer.plan import JoinPlan, Member, PushPlan
from vst.transfer.publisher import Deadlines, Publisher

STANDIN = str(Path(__file__).parent / "nccl_standin")


@pytest.fixture(scope="module")
def nccl(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server on A whose backend is vLLM's NCCL engine."""
    live = Live(pair[0], tmp_path_factory.mktemp("nccl") / "server.log")
    spec = replace(default_spec(), backend="nccl")
    env = {**environment(spec, os.environ), "PYTHONPATH": STANDIN}
    live.process = ServerProcess(command(spec, pair[0], "127.0.0.1", live.port, "tiny"), env, live.log)
    live.process.wait_ready(ControlPlane(live.url), 300)
    yield live
    live.stop()


@pytest.mark.parametrize(
    ("bucket", "staging"),
    [(None, "tensor"), (50_000, "pipelined"), (1, "tensor")],
    ids=["default buffers", "buffers below the largest tensor, through the ring", "a buffer for each tensor"],
)
def test_vllms_nccl_engines_take_a_server_from_a_to_b_and_back(
    ladder: Run, nccl: Live, pair: tuple[Path, Path], tmp_path: Path, bucket: int | None, staging: str
) -> None:
    def stored(name: str) -> Record:
        return Record.from_json(json.loads((ladder.dir / f"record-{name}.json").read_text()))

    for role, path in zip("ab", pair, strict=True):
        (tmp_path / role).write_text(json.dumps(with_digests(read_manifest(path), None).to_json()))
    control = ControlPlane(nccl.url, timeout_s=60)
    publisher = Publisher(Deadlines(120, 60, 60, 60, 60, 1e6), tmp_path / "publisher.log", lambda report: None)
    publisher.start({**os.environ, "VLLM_TARGET_DEVICE": "cpu", "PYTHONPATH": STANDIN})
    where = JoinPlan(str(tmp_path / "a"), (Member(nccl.url, 1),), None, "nccl", "127.0.0.1", 0, bucket, "cpu", 60, 60)
    where = replace(where, staging=staging)
    probes = make_probes(320, 8, 4, 192, 8, 5, 20260101)
    try:
        publisher.join(where)
        for role, cold in (("b", stored("reference")), ("a", stored("model-1"))):
            control.post("/pause", params={"mode": "keep"})
            publisher.push(PushPlan(str(tmp_path / role), role), 902912)
            control.post("/reset_prefix_cache")
            control.post("/resume")
            record = take_record(control, "tiny", probes, role, 60)
            assert difference(record, cold, 0.0).equal
    finally:
        publisher.stop()
