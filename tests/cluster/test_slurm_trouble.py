"""What goes wrong on a cluster: every run ends with a verdict or the word that there is none, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from cluster.conftest import Vst
from cluster.gate import Gate
from cluster.slurm_cluster import Cluster


def ending(vst: Vst, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = vst.runs()[number]["ending"]
    return found


def verdict(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((path / "verdict.json").read_text())
    return content


def test_one_killed_job_loses_no_other_result(vst: Vst, gate: Gate) -> None:
    launcher = vst.start_slurm("-m", "lane=L0,compare", *gate.words[1:])
    run = vst.until_begun("1")
    os.kill(json.loads((run / "run.json").read_text())["pid"], signal.SIGKILL)
    out, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 20, out
    assert ending(vst, 0)["verdict"] == "PASS"
    assert "no verdict" in ending(vst, 1)["reason"] and "FAILED" in ending(vst, 1)["reason"]
    assert ending(vst, 1)["verdict"] == "FAIL_CLOSED"


def test_scancel_of_a_running_job_leaves_an_interrupted_verdict(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    launcher = vst.start_slurm(*gate.words)
    run = vst.until_begun()
    cluster.run("scancel", vst.job())
    launcher.communicate(timeout=60)
    assert launcher.returncode == 143
    assert verdict(run)["interrupted"] and verdict(run)["verdict"] == "FAIL_CLOSED"
    assert not (vst.sweep / "0.attempt-2").exists()


def test_scancel_of_a_pending_job_is_no_verdict_and_no_pass(vst: Vst, cluster: Cluster) -> None:
    launcher = vst.start_slurm("lane=L0", "+hydra.launcher.additional_parameters.begin=now+1hour")
    cluster.until(cluster.jobs, "a pending job")
    cluster.run("scancel", *cluster.jobs())
    launcher.communicate(timeout=60)
    assert launcher.returncode == 143
    assert "CANCELLED" in ending(vst)["reason"]


def test_ctrl_c_cancels_what_was_submitted(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    launcher = vst.start_slurm("-m", *gate.words, "oracle.seed=range(0,5)", "hydra.launcher.array_parallelism=1")
    run = vst.until_begun()
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, out
    cluster.until(lambda: not cluster.jobs(), "an empty queue", 30)
    assert verdict(run)["interrupted"]
    assert all(one["ending"]["verdict"] == "FAIL_CLOSED" for one in vst.runs())


def test_sigterm_cancels_too(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    launcher = vst.start_slurm(*gate.words)
    vst.until_begun()
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 143
    cluster.until(lambda: not cluster.jobs(), "an empty queue", 30)


def test_a_job_over_its_time_limit_writes_its_verdict_in_time(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    limit = ("hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=55", "hydra.launcher.requeues=0")
    launcher = vst.start_slurm(*gate.words, *limit)
    run = vst.until_begun()
    launcher.communicate(timeout=90)
    assert launcher.returncode == 143
    assert verdict(run)["interrupted"]
    signals = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [one["signal"] for one in signals if one["kind"] == "interrupted"] == ["SIGUSR2"]
    assert cluster.jobs() == []


def test_a_warned_job_without_a_transaction_is_requeued_into_a_new_attempt(
    vst: Vst, gate: Gate, cluster: Cluster
) -> None:
    launcher = vst.start_slurm(*gate.words)
    first = vst.until_begun()
    cluster.run("scancel", "--signal=USR2", vst.job())
    second = vst.until_begun("0.attempt-2", 180)  # SLURM lets a requeued job wait for a minute or two
    assert verdict(first)["interrupted"]
    gate.open()
    launcher.communicate(timeout=60)
    assert launcher.returncode == 0
    assert ending(vst)["attempt"] == 2 and verdict(second)["verdict"] == "PASS"
    assert json.loads((second / "run.json").read_text())["attempt"] == 2


def test_a_warned_job_within_a_transaction_is_not_requeued(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    launcher = vst.start_slurm(*gate.words)
    run = vst.until_begun()
    (run / "weight-update-1.json").write_text("{}")
    cluster.run("scancel", "--signal=USR2", vst.job())
    launcher.communicate(timeout=60)
    assert launcher.returncode == 143
    assert verdict(run)["interrupted"]
    assert not (vst.sweep / "0.attempt-2").exists() and cluster.jobs() == []


def test_a_run_on_a_drained_node_ends_by_itself_and_the_next_goes_elsewhere(
    vst: Vst, gate: Gate, cluster: Cluster
) -> None:
    launcher = vst.start_slurm(*gate.words, "hydra.launcher.nodelist=n1")
    vst.until_begun()
    cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    try:
        gate.open()
        launcher.communicate(timeout=60)
        assert launcher.returncode == 0
        vst.cwd = vst.cwd / "next"
        vst.cwd.mkdir()
        code, out = vst.slurm("lane=L0")
        assert code == 0, out
        sidecar = json.loads((vst.sweep / "0/run.json.meta.json").read_text())
        assert sidecar["predicate"]["machine"]["slurm"]["nodes"] == "n2"
    finally:
        cluster.run("scontrol", "update", "nodename=n1", "state=resume", check=False)


def test_a_run_whose_node_is_lost_starts_again_in_a_new_attempt(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    launcher = vst.start_slurm(*gate.words)
    first = vst.until_begun()
    node = cluster.run("squeue", "-h", "-o", "%N", "-j", vst.job()).strip()
    cluster.lose_node(node)
    try:
        vst.until_begun("0.attempt-2", 180)  # SLURM lets a requeued job wait
        gate.open()
        out, _ = launcher.communicate(timeout=60)
        assert launcher.returncode == 0, out
        assert ending(vst)["attempt"] == 2
        assert json.loads((first / "run.json").read_text()).get("exit_code") != 0
    finally:
        cluster.return_node(node)


def test_a_job_over_its_memory_is_never_passed_and_its_log_says_why(vst: Vst, gate: Gate) -> None:
    # Python alone is more than this job may have. SLURM kills the step outright and asks what belongs to the batch to
    # end: which of the two comes first, and whether the run has begun by then, is SLURM's.
    code, out = vst.slurm(*gate.words, "hydra.launcher.mem_gb=0.01")
    asked = {143: "interrupted; its job", 20: "no verdict: its job"}
    assert code in asked and asked[code] in ending(vst)["reason"], out
    assert ending(vst)["verdict"] == "FAIL_CLOSED" and "exceeded memory limit" in vst.logs()


def test_a_stopped_slurmctld_loses_nothing(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    launcher = vst.start_slurm("-m", "lane=L0,compare", *gate.words[1:])
    vst.until_begun("1")
    cluster.stop_controller()
    try:
        time.sleep(1)
        gate.open()
    finally:
        cluster.start_controller()
    out, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, out
    assert [run["ending"]["verdict"] for run in vst.runs()] == ["PASS", "PASS"]
    cluster.until(lambda: not cluster.jobs(), "an empty queue", 60)


def test_a_submission_waits_for_a_slurmctld_that_is_away(vst: Vst, cluster: Cluster) -> None:
    cluster.stop_controller()
    try:
        launcher = vst.start_slurm("lane=L0")
        time.sleep(3)
    finally:
        cluster.start_controller()
    out, _ = launcher.communicate(timeout=90)
    assert launcher.returncode == 0, out


def test_a_slurmctld_that_stays_away_is_an_infrastructure_error(vst: Vst, cluster: Cluster) -> None:
    cluster.stop_controller()
    try:
        code, out = vst.slurm("lane=L0", "hydra.launcher.submit_timeout_s=1")
    finally:
        cluster.start_controller()
    assert code == 20
    assert "1 of 1 run(s) could not be submitted" in out and "Unable to contact slurm controller" in out
