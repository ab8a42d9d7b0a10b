"""A SLURM for the whole session, and vst's command line on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.gate import Gate
from cluster.slurm_cluster import Cluster
from cluster.slurm_install import install
from vst.checkpoint.tiny import make_tiny_pair
from vst.cluster.clean_env import clean_env

QUICK = ("poll_s=0.5", "settle_s=1", "unseen_s=5", "retry_s=0.5", "cpus_per_task=1", "timeout_min=5", "mem_gb=0.5")


def _cluster(accounting: bool) -> Iterator[Cluster]:
    if problem := install(accounting):
        pytest.fail(problem)
    made = Cluster(accounting)
    try:
        made.start()
        yield made
    finally:
        strays = made.stop()
    assert not strays, "processes outlived the cluster"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Without accounting, as on a site that has no sacct."""
    yield from _cluster(accounting=False)


@pytest.fixture(scope="session")
def accounted() -> Iterator[Cluster]:
    """With slurmdbd, so that there are limits and a sacct."""
    yield from _cluster(accounting=True)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all runs, with the embedded pair in it."""
    path = tmp_path_factory.mktemp("cache")
    make_tiny_pair(path / "tiny")
    return path


@dataclass
class Vst:
    """``python -m vst`` in a directory of its own."""

    cwd: Path
    env: dict[str, str]
    cluster: Cluster | None = None
    launchers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def sweep(self) -> Path:
        return self.cwd / "sweep"

    def arguments(self, *words: str, launcher: str = "slurm") -> list[str]:
        own = [f"hydra.launcher.{one}" for one in QUICK] if launcher == "slurm" else []
        # Hydra takes its own flags only before the overrides.
        flags = words[: next((n for n, word in enumerate(words) if "=" in word), len(words))]
        launch = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={self.sweep}"]
        return [*flags, *launch, *own, *words[len(flags) :]]

    def start(self, *words: str, module: str = "vst") -> subprocess.Popen[str]:
        """The command, going on."""
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=self.cwd,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.launchers.append(process)
        return process

    def __call__(self, *words: str, module: str = "vst", timeout: float = 120.0) -> tuple[int, str]:
        """Exit code and output of the command."""
        process = self.start(*words, module=module)
        out, _ = process.communicate(timeout=timeout)
        return process.returncode, out

    def slurm(self, *words: str, timeout: float = 120.0) -> tuple[int, str]:
        return self(*self.arguments(*words), timeout=timeout)

    def start_slurm(self, *words: str) -> subprocess.Popen[str]:
        return self.start(*self.arguments(*words))

    def file(self) -> dict[str, Any]:
        """The sweep's file as it is now; empty when it is not there yet."""
        try:
            content: dict[str, Any] = json.loads((self.sweep / "sweep.json").read_text())
        except FileNotFoundError:
            return {}
        return content

    def runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.file().get("runs", [])
        return runs

    def job(self, number: int = 0) -> str:
        return str(self.runs()[number]["job"])

    def until_begun(self, run: str = "0", seconds: float = 60.0) -> Path:
        """Wait until a run has opened its directory; the directory."""
        path, end = self.sweep / run, time.monotonic() + seconds
        while not (path / "run.json").exists():
            assert time.monotonic() < end, f"{path} has no run.json; {self.logs()}\n{self._cluster_account()}"
            time.sleep(0.05)
        return path

    def _cluster_account(self) -> str:
        return self.cluster.account() if self.cluster else ""

    def logs(self) -> str:
        found = sorted([*self.sweep.glob(".submitit/*.err"), *self.sweep.glob(".launch/*.log")])
        return "\n".join(f"--- {log.name}\n{log.read_text()[-1000:]}" for log in found)


@pytest.fixture
def local(tmp_path: Path, cache: Path) -> Iterator[Vst]:
    """The command line without any SLURM."""
    made = Vst(tmp_path, {**clean_env(), "VST_CACHE": str(cache), "VST_RUNS": str(tmp_path / "runs")})
    yield made
    finish(made)


@pytest.fixture
def vst(tmp_path: Path, cache: Path, cluster: Cluster) -> Iterator[Vst]:
    """The command line on the cluster; what a test leaves in the queue is cancelled after it."""
    made = Vst(tmp_path, {**cluster.env, "VST_CACHE": str(cache), "VST_RUNS": str(tmp_path / "runs")}, cluster)
    yield made
    finish(made)
    if left := cluster.jobs():
        cluster.run("scancel", *left, check=False)
        cluster.until(lambda: not cluster.jobs(), "an empty queue")


def finish(made: Vst) -> None:
    """End the launchers that a test left."""
    for process in made.launchers:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Makes a run wait inside its lane until the test lets it go on."""
    return Gate(tmp_path)
