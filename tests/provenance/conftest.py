"""Real runs of lane L0 for the tests: one that passes, one that fails, one that was terminated, one that was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vst.checkpoint.tiny import make_tiny_pair
from vst.checkpoint.writer import write_sparse_checkpoint

RunVst = Callable[..., "Run"]
DEADLINE_S = 60


@dataclass(frozen=True)
class Run:
    """One ``python -m vst``: its exit code, its output and its run directory."""

    code: int
    output: str
    path: Path

    def json(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.path / name).read_bytes())
        return content

    def predicate(self, name: str = "run.json") -> dict[str, Any]:
        found: dict[str, Any] = self.json(f"{name}.meta.json")["predicate"]
        return found


def command(path: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "vst", *overrides, f"hydra.run.dir={path}"]


def run_vst(path: Path, *overrides: str, **environment: str) -> Run:
    """Run the command line to its end."""
    env = {**os.environ, "VST_CACHE": str(path.parent / "cache"), **environment}
    done = subprocess.run(
        command(path, *overrides),
        cwd=path.parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return Run(done.returncode, done.stdout + done.stderr, path)


def verify_cli(path: Path, *options: str) -> tuple[int, str]:
    """``python -m vst.provenance verify`` where neither torch nor vLLM can be imported."""
    program = (
        "import sys, runpy; sys.modules['torch'] = sys.modules['vllm'] = None; "
        "sys.argv[0] = 'vst.provenance'; runpy.run_module('vst.provenance', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "verify", str(path), *options], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="session")
def passing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_vst(tmp_path_factory.mktemp("passing") / "run", "lane=L0")


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a checkpoint whose last shard was cut."""
    root = tmp_path_factory.mktemp("failing")
    a, b = make_tiny_pair(root / "tiny")
    shard = sorted(b.glob("*.safetensors"))[-1]
    shard.write_bytes(shard.read_bytes()[:-1])
    return run_vst(root / "run", "lane=L0", "model=local", f"model.path={a}", f"checkpoint.path={b}")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that takes seconds to read and no space on the disk."""
    path = tmp_path_factory.mktemp("large") / "checkpoint"
    write_sparse_checkpoint(path, 8, 4, 64 << 20)
    return path


def run_and_signal(path: Path, checkpoint: Path, number: signal.Signals) -> Run:
    """Start a run on the large checkpoint and send a signal while it reads."""
    overrides = ("lane=L0", "model=local", f"model.path={checkpoint}", f"checkpoint.path={checkpoint}")
    env = {**os.environ, "VST_CACHE": str(path.parent / "cache")}
    process = subprocess.Popen(
        command(path, *overrides), cwd=path.parent, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until = time.monotonic() + DEADLINE_S
    while not (path / ".hydra/resolved.yaml.meta.json").exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(number)
    output, _ = process.communicate(timeout=DEADLINE_S)
    return Run(process.returncode, output, path)


@pytest.fixture(scope="session")
def terminated(tmp_path_factory: pytest.TempPathFactory, large: Path) -> Run:
    return run_and_signal(tmp_path_factory.mktemp("terminated") / "run", large, signal.SIGTERM)


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory, large: Path) -> Run:
    return run_and_signal(tmp_path_factory.mktemp("killed") / "run", large, signal.SIGKILL)


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Run], Run]:
    """A copy of a run that a test may spoil."""

    def copy(run: Run) -> Run:
        return Run(run.code, run.output, shutil.copytree(run.path, tmp_path / "copy", symlinks=True))

    return copy
