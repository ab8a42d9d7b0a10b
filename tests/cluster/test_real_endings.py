"""Jobs with real servers that are warned and requeued, drained, cancelled, or over their time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.conftest import Vst
from cluster.slurm_cluster import Cluster

pytestmark = pytest.mark.vllm
ROOM = ("hydra.launcher.mem_gb=7", "hydra.launcher.cpus_per_task=4")
# A push of the embedded pair that takes minutes: it can only be ended from outside.
SLOW = ("transfer.rate_limit_bytes_per_s=4000", "transfer.bucket_bytes=65536")


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one kind that a run has written so far."""
    file = run / "events.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [event for event in map(json.loads, (line for line in lines if line[-1] == "\n")) if event["kind"] == kind]


def verdict(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "verdict.json").read_text())
    return found


def servers(vst: Vst) -> list[str]:
    """The command lines of servers and publishers of this test that live."""
    lines = (" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))
    return [line for line in lines if "vllm.entrypoints" in line and str(vst.cwd) in line]


def shorten(cluster: Cluster, job: str) -> None:
    """Give a job one or two minutes more from now: SLURM warns it at once when it is to be warned 115 s before."""
    minutes = int(cluster.run("squeue", "-h", "-o", "%M", "-j", job).partition(":")[0])
    cluster.run("scontrol", "update", f"jobid={job}", f"timelimit={minutes + 2}")


@pytest.fixture
def until(vst: Vst, cluster: Cluster) -> Callable[[Path, str], None]:
    def wait(run: Path, kind: str) -> None:
        cluster.until(lambda: events(run, kind), f"{kind} in {run.name}; {vst.logs()}", 240)

    return wait


@pytest.fixture
def own_model(vst: Vst, cache: Path) -> Iterator[tuple[str, ...]]:
    """The embedded pair under this test's directory, so that its servers can be told from others by their command."""
    pair = sorted(path for path in (cache / "tiny").iterdir() if (path / "config.json").exists())
    for place, source in zip(("a", "b"), pair, strict=True):
        (vst.cwd / place).symlink_to(source)
    yield ("model=local", f"model.path={vst.cwd / 'a'}", f"checkpoint.path={vst.cwd / 'b'}")
    deadline = time.monotonic() + 20
    while (left := servers(vst)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, "a server outlived its job"


def test_a_warned_run_starts_again_and_passes_on_a_node_that_is_drained_meanwhile(
    vst: Vst, cluster: Cluster, own_model: tuple[str, ...], until: Callable[[Path, str], None]
) -> None:
    launcher = vst.start_slurm("lane=L2", *own_model, *ROOM, "hydra.launcher.timeout_min=20")
    first = vst.until_begun()
    until(first, "server_start")
    cluster.run("scancel", "--signal=USR2", vst.job())
    second = vst.until_begun("0.attempt-2", 120)
    assert verdict(first)["interrupted"] and verdict(first)["verdict"] == "FAIL_CLOSED"
    until(second, "server_start")
    node = cluster.run("squeue", "-h", "-o", "%N", "-j", vst.job()).strip()
    cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        out, _ = launcher.communicate(timeout=400)
        assert launcher.returncode == 0, out + vst.logs()
        assert "drained" in cluster.run("sinfo", "-h", "-N", "-n", node, "-o", "%T")
    finally:
        cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
    assert verdict(second)["verdict"] == "PASS" and verdict(second)["lane"] == "L2"
    assert vst.runs()[0]["ending"]["attempt"] == 2
    assert cluster.state(vst.job()) == "COMPLETED 0:0"


def test_a_cancelled_push_and_one_over_its_time_leave_their_verdicts_and_no_server(
    vst: Vst, cluster: Cluster, own_model: tuple[str, ...], until: Callable[[Path, str], None]
) -> None:
    limit = ("hydra.launcher.timeout_min=30", "hydra.launcher.signal_delay_s=115", "hydra.launcher.requeues=0")
    launcher = vst.start_slurm("-m", "lane=L2", "oracle.seed=1,2", *own_model, *SLOW, *ROOM, *limit)
    cancelled, late = vst.until_begun("0"), vst.until_begun("1")
    for run in (cancelled, late):
        until(run, "publisher_progress")
    cluster.run("scancel", vst.job(0))
    shorten(cluster, vst.job(1))
    out, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == 143, out + vst.logs()
    for run in (cancelled, late):
        found = verdict(run)
        assert found["interrupted"] and found["verdict"] == "FAIL_CLOSED" and found["exit_code"] == 143
        sent = [event for kind in ("http", "publisher_http") for event in events(run, kind)]
        posts = [event["path"] for event in sent if event["method"] == "POST"]
        assert "/start_weight_update" in posts
        assert "/finish_weight_update" not in posts and "/resume" not in posts
    assert [event["signal"] for event in events(late, "interrupted")] == ["SIGUSR2"]
    assert [one["ending"]["exit_code"] for one in vst.runs()] == [143, 143]
