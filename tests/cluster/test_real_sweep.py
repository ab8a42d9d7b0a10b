"""Two checkpoints × two lanes as one sweep on SLURM, each run with a real server; one of them must fail.

The model has tied embeddings, and vLLM 0.32 on a CPU keeps the old head when it is updated. A checkpoint that changes
the embedding therefore arrives wrong; one that leaves it alone arrives whole.
"""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from e2e.checkpoints import bf16, qwen2_tied, write_pair

from cluster.conftest import Vst
from vst.checkpoint.writer import write_safetensors

EMBEDDING = "model.embed_tokens.weight"
ROOM = ("hydra.launcher.mem_gb=14", "hydra.launcher.cpus_per_task=4", "hydra.launcher.timeout_min=25")


def checkpoints(directory: Path) -> tuple[Path, Path, Path]:
    """A; B, in which every tensor differs from A; and C, which is B with A's embedding."""
    config, shapes = qwen2_tied()
    a, b = write_pair(directory, config, shapes)
    c = directory / "c"
    c.mkdir()
    (c / "config.json").write_text((b / "config.json").read_text())
    tensors = {
        name: ("BF16", shape, bf16("a" if name == EMBEDDING else "b", name, shape)) for name, shape in shapes.items()
    }
    write_safetensors(c / "model.safetensors", tensors, {"format": "pt"})
    return a, b, c


@pytest.mark.vllm
def test_a_sweep_with_real_servers_exits_with_10_and_names_the_run_that_fails(vst: Vst) -> None:
    a, b, c = checkpoints(vst.cwd / "checkpoints")
    sweep = ("-m", "model=local", f"model.path={a}", f"checkpoint.path={b},{c}", "lane=L2,L3", "lane.cycles=1")
    code, out = vst.slurm(*sweep, "lane.controls=none", *ROOM, timeout=900)
    assert code == 10, out + vst.logs()
    verdicts = [json.loads((vst.sweep / f"{number}/verdict.json").read_text()) for number in range(4)]
    assert sorted((verdict["lane"], verdict["exit_code"]) for verdict in verdicts) == [
        ("L2", 0),
        ("L2", 0),
        ("L3", 0),
        ("L3", 10),
    ]
    (bad,) = [number for number, verdict in enumerate(verdicts) if verdict["exit_code"] == 10]
    assert "transition.to_b" in next(line for line in out.splitlines() if "FAIL_CLOSED" in line)
    assert vst.cluster and vst.cluster.state(vst.job(bad)) == "FAILED 10:0"
    lines = [" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if "api_server" in line and str(vst.cwd) in line]
