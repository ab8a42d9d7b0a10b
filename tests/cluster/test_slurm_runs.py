"""Runs and sweeps as SLURM jobs: where they run, what they leave, and the codes that the launcher and SLURM show."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cluster.conftest import Vst
from cluster.gate import Gate
from cluster.slurm_cluster import Cluster


def test_a_single_run_goes_to_the_cluster_without_multirun(vst: Vst, cluster: Cluster) -> None:
    code, out = vst.slurm("lane=L0")
    assert code == 0, out + vst.logs()
    (run,) = vst.runs()
    assert run["ending"]["verdict"] == "PASS"
    assert cluster.state(run["job"]) == "COMPLETED 0:0"
    sidecar = json.loads((vst.sweep / "0/verdict.json.meta.json").read_text())
    assert sidecar["predicate"]["machine"]["slurm"]["job"] == run["job"]
    assert json.loads((vst.sweep / "0/run.json").read_text())["request"]["config_digest"] == run["config_digest"]


def test_a_failed_run_is_a_failed_job(vst: Vst, gate: Gate, cluster: Cluster) -> None:
    launcher = vst.start_slurm(*gate.words)
    vst.until_begun()
    gate.open(equal=False)
    out, _ = launcher.communicate(timeout=30)
    assert launcher.returncode == 10, out
    assert cluster.state(vst.job()) == "FAILED 10:0"
    assert "compare.records" in out


def two_checkpoints(folder: Path, cache: Path) -> tuple[Path, Path, Path]:
    """A, B, and a copy of A under another name, which is no transition."""
    pair = sorted(path for path in (cache / "tiny").iterdir() if (path / "config.json").exists())
    places = folder / "a", folder / "b", folder / "same"
    for source, place in zip((*pair, pair[0]), places, strict=True):
        shutil.copytree(source, place)
    return places


def test_a_sweep_over_paths_names_the_run_that_failed_and_exits_with_the_highest_code(vst: Vst, cache: Path) -> None:
    a, b, same = two_checkpoints(vst.cwd, cache)
    sweep = ("-m", "model=local", f"model.path={a}", f"checkpoint.path={b},{same}", "lane=L0,ladder", "lane.upto=L0")
    code, out = vst.slurm(*sweep)
    assert code == 11, out + vst.logs()
    verdicts = [json.loads((vst.sweep / f"{number}/verdict.json").read_text())["exit_code"] for number in range(4)]
    assert sorted(verdicts) == [0, 0, 11, 11]
    assert [run["ending"]["exit_code"] for run in vst.runs()] == verdicts
    failed = next(line for line in out.splitlines() if "files.pair" in line)
    assert "FAIL_CLOSED" in failed
    assert vst.file()["exit_code"] == 11


def test_a_sweep_over_a_group_takes_options_from_the_users_own_directory(vst: Vst, cache: Path) -> None:
    a, b, _ = two_checkpoints(vst.cwd, cache)
    for step in (100, 200, 300):
        text = f"defaults: [default, _self_]\nname: step{step}\npath: {b}\n"
        path = vst.cwd / f"mine/checkpoint/step{step}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    words = ("model=local", f"model.path={a}", "lane=L0", "hydra.sweep.subdir=${checkpoint.name}")
    code, out = vst.slurm("--config-dir", "mine", "-m", "checkpoint=glob(step*)", *words)
    assert code == 0, out + vst.logs()
    assert [run["directory"] for run in vst.runs()] == ["step100", "step200", "step300"]
    assert all((vst.sweep / f"step{step}/verdict.json").exists() for step in (100, 200, 300))


def test_a_sweep_larger_than_maxarraysize_goes_as_several_arrays(vst: Vst) -> None:
    code, out = vst.slurm("-m", "lane=L0", "oracle.seed=range(0,5)")
    assert code == 0, out + vst.logs()
    arrays = [run["job"].partition("_")[0] for run in vst.runs()]
    assert sorted(arrays.count(array) for array in set(arrays)) == [1, 4]


def test_a_launcher_inside_a_job_does_not_pass_that_jobs_settings_on(vst: Vst) -> None:
    vst.env |= {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "9", "SLURM_NTASKS": "9", "SBATCH_PARTITION": "nowhere"}
    vst.env |= {"SQUEUE_STATES": "TIMEOUT", "SBATCH_ARRAY": "0-3"}
    code, out = vst.slurm("lane=L0", "hydra.launcher.mem_gb=null", "hydra.launcher.cpus_per_task=1")
    assert code == 0, out + vst.logs()


def test_an_unknown_partition_is_said_and_nothing_stays_in_the_queue(vst: Vst, cluster: Cluster) -> None:
    code, out = vst.slurm("-m", "lane=L0", "oracle.seed=1,2", "hydra.launcher.partition=nowhere")
    assert code == 2
    assert "sbatch refused: invalid partition specified: nowhere" in out
    assert cluster.jobs() == []
    assert [run["ending"]["exit_code"] for run in vst.runs()] == [20, 20]


def test_a_wrong_configuration_of_one_run_keeps_the_whole_sweep_back(vst: Vst, cluster: Cluster) -> None:
    code, out = vst.slurm("-m", "lane=L0", "model=tiny,local")
    assert code == 2
    assert "run 1 (lane=L0 model=local): model=local needs 2 value(s)" in out
    assert not vst.file() and cluster.jobs() == []


def test_a_dry_run_writes_the_script_that_is_submitted_otherwise(vst: Vst, cluster: Cluster) -> None:
    words = ("-m", "lane=L0", "oracle.seed=1,2", "hydra.launcher.setup=[echo ready]", "hydra.launcher.comment=it is")
    code, out = vst.slurm(*words, "launch.dry_run=true")
    assert code == 0, out
    assert cluster.jobs() == [] and not vst.file()
    script = (vst.sweep / ".launch/submission-0.sh").read_text()
    assert "#SBATCH --array=0-1%2" in script and "echo ready" in script
    assert "seed: 2" in (vst.sweep / ".launch/run-1.yaml").read_text()
    code, out = vst.slurm(*words)
    assert code == 0, out
    array = vst.job().partition("_")[0]
    assert (vst.sweep / f".submitit/{array}_submission.sh").read_text() == script


def test_without_wait_the_status_command_follows_the_sweep(vst: Vst, gate: Gate) -> None:
    code, out = vst.slurm(*gate.words, "launch.wait=false")
    assert code == 0 and "nothing is proven yet" in out
    code, out = vst(str(vst.sweep), module="vst.status")
    assert code == 12 and "not ended" in out
    code, out = vst.slurm(*gate.words, "launch.resume=true")
    assert code == 2 and f"still has jobs under way ({vst.job()})" in out
    vst.until_begun()
    gate.open()
    for _ in range(60):
        code, out = vst(str(vst.sweep), module="vst.status")
        if code != 12:
            break
    assert code == 0 and "1 of 1 runs passed" in out
    assert vst.file()["exit_code"] == 0
    code, out = vst(str(vst.sweep / "0"), module="vst.status")
    assert code == 0 and out.startswith("PASS")
