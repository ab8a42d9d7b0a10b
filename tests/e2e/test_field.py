"""The field test again: three rows of the published table, and two reproductions that know nothing of this project."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Run, Vst
from vst.report.issue import issue
from vst.report.material import read_material
from vst.report.matrix import row

FIELD = Path(__file__).parents[1] / "field"
PASSING, TIED, EXPERTS = "qwen3", "qwen2-tied", "mixtral"
SAME = ("result", "lanes", "failing", "exit_code", "content")


def published(name: str) -> dict[str, Any]:
    rows = json.loads((FIELD / "matrix.json").read_text())["rows"]
    return next(row for row in rows if row["model"] == name and row["tensor_parallel_size"] == 1)


@pytest.fixture(scope="module")
def diagnosed(vst: Vst) -> Callable[[str], Run]:
    """The diagnosis of a model, made once, when it is first asked for."""
    return cache(lambda name: vst(f"model=zoo/{name}", "lane=diagnose", timeout=1500))


@pytest.mark.parametrize("name", [PASSING, TIED, EXPERTS])
def test_a_row_comes_out_as_it_was_published(vst: Vst, name: str) -> None:
    run = vst(f"model=zoo/{name}", "lane=L4", timeout=1500)
    found, expected = row(read_material(run.dir), None), published(name)
    assert {key: found[key] for key in SAME} == {key: expected[key] for key in SAME}, run.out


@pytest.mark.parametrize("name", [TIED, EXPERTS])
def test_a_diagnosis_names_the_published_tensors_in_no_more_than_twelve_pushes(
    diagnosed: Callable[[str], Run], name: str
) -> None:
    run = diagnosed(name)
    found, expected = json.loads((run.dir / "diagnosis.json").read_text()), published(name)["diagnosis"]
    assert found["pushes"] <= 12 and found["minimal"] is True
    assert (found["mode"], found["why"], found["parts"]) == (expected["mode"], expected["why"], expected["parts"])
    assert found["same_wrong"] is True and expected["reload"] == "the same wrong answers"


@pytest.mark.parametrize("name", [TIED, EXPERTS])
def test_a_stored_diagnosis_is_judged_again_and_comes_out_the_same(diagnosed: Callable[[str], Run], name: str) -> None:
    command = [sys.executable, "-m", "vst.provenance", "verify", str(diagnosed(name).dir), "--rerun-checks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [TIED, EXPERTS])
def test_a_reproduction_shows_the_fault_with_vllm_and_curl_alone(
    diagnosed: Callable[[str], Run], name: str, tmp_path: Path
) -> None:
    text = issue(diagnosed(name).dir)
    script = text.partition("```bash\n")[2].partition("```")[0]
    assert "vst" not in re.sub(r"\bVLLM_\w+", "", script)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cpu = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}
    # Its ``python`` is the one of the environment that vLLM is installed in.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, **cpu, "PATH": path, "VLLM_PLUGINS": "", "PORT": str(port)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"FAULT: [1-9]\d* of \d+ log-probabilities differ", done.stdout)


def test_a_checkpoint_of_somebody_else_gets_a_verdict_with_nothing_but_its_path(vst: Vst, tmp_path: Path) -> None:
    made = tmp_path / "somebody's"
    making = (
        "import sys, torch, transformers as t; torch.manual_seed(7);"
        "c = t.Qwen3Config(vocab_size=600, hidden_size=96, intermediate_size=160, num_hidden_layers=3, head_dim=32,"
        "num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=1024, initializer_range=0.1);"
        "t.Qwen3ForCausalLM(c).to(torch.bfloat16).save_pretrained(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", making, str(made)], check=True, capture_output=True, timeout=300)
    run = vst("lane=L3", "model=local", f'checkpoint.path="{made}"', timeout=1500)
    assert run.code == 0, run.out
    assert [lane["verdict"] for lane in run.verdict["lanes"]] == ["PASS"] * 4
