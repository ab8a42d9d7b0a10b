"""On a cluster with accounting: limits of jobs, and what sacct knows when squeue has forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.conftest import Vst, finish
from cluster.slurm_cluster import Cluster
from vst.cluster import job_states


@pytest.fixture
def limited(tmp_path: Path, cache: Path, accounted: Cluster) -> Iterator[Vst]:
    """A user who may have three jobs at once."""
    accounted.run("sacctmgr", "-i", "modify", "user", accounted.values["user"], "set", "maxsubmitjobs=3")
    made = Vst(tmp_path, {**accounted.env, "VST_CACHE": str(cache), "VST_RUNS": str(tmp_path / "runs")}, accounted)
    yield made
    finish(made)
    accounted.run("sacctmgr", "-i", "modify", "user", accounted.values["user"], "set", "maxsubmitjobs=-1")


def test_a_full_queue_delays_a_sweep_and_loses_nothing(
    limited: Vst, accounted: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = limited.slurm("-m", "lane=L0", "oracle.seed=range(0,5)")
    assert code == 0, out + limited.logs()
    assert "wait to be submitted" in out and "MaxSubmitJob" in out
    assert [run["ending"]["verdict"] for run in limited.runs()] == ["PASS"] * 5
    # What sacct says of the same jobs, as it is asked when slurmctld has forgotten them.
    monkeypatch.setenv("SLURM_CONF", accounted.env["SLURM_CONF"])
    jobs = [run["job"] for run in limited.runs()]
    accounted.until(lambda: len(job_states.sacct(jobs)) == 5, "sacct's account of five jobs", 20)
    assert {state.word for state in job_states.sacct(jobs).values()} == {"COMPLETED"}


def test_a_queue_that_stays_full_is_an_infrastructure_error(limited: Vst, accounted: Cluster) -> None:
    accounted.run("sacctmgr", "-i", "modify", "user", accounted.values["user"], "set", "maxsubmitjobs=0")
    code, out = limited.slurm("-m", "lane=L0", "oracle.seed=1,2", "hydra.launcher.submit_timeout_s=1")
    assert code == 20, out
    assert "2 of 2 run(s) could not be submitted within 1 s" in out
    assert all("not submitted" in run["ending"]["reason"] for run in limited.runs())
