"""The parts that can be looked at without a scheduler: shapes, states, answers, the division of GPUs, attempts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from vst import config
from vst.attempt import attempt_directory, attempt_number, attempts_begun, claim, left_half_done
from vst.cluster.clean_env import clean_env
from vst.cluster.job_states import JobState, parse
from vst.cluster.outcome import Ending, no_verdict, read_ending
from vst.cluster.sbatch import ControllerAway, QueueFull, classify, parameters
from vst.cluster.shape import LocalShape, SlurmShape, make_shape, unknown_overrides
from vst.cluster.spec import JobSpec, typed
from vst.cluster.sweep import Run, Sweep
from vst.cluster.watch import state_of
from vst.confdir import conf_dir
from vst.config import VstConf
from vst.errors import ConfigError
from vst.server.allocation import Allocation, TooFewDevices, devices_needed, split
from vst.server.launch import ON_NODE, ServerSpec, command, environment, launch_prefix


def conf(*overrides: str) -> VstConf:
    config.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return config.load(compose("config", ["hydra/launcher=basic", *overrides]))


GPU = ("server=gpu", "transfer=nccl", "publisher=gpu", "server.tensor_parallel_size=2")


def test_the_server_gets_the_first_gpus_and_the_publisher_the_next_one_whatever_their_names() -> None:
    found = split(conf(*GPU), Allocation(("3", "GPU-a", "1", "0"), ("n1",)))
    assert (found.server, found.publisher) == (("3", "GPU-a"), ("1",))
    assert (found.device, found.gpu) == ("cuda:0", "cuda:1")


def test_a_server_over_nodes_needs_its_share_on_each() -> None:
    found = split(conf(*GPU, "server.launch_prefix=[srun]"), Allocation(("0", "1"), ("n1", "n2")))
    assert (found.server, found.publisher) == (("0",), ("1",))


def test_too_few_gpus_are_counted() -> None:
    with pytest.raises(TooFewDevices, match=r"has 2 GPU\(s\) on this node \(0, 1\), needed are 3"):
        split(conf(*GPU), Allocation(("0", "1"), ("n1",)))


def test_gpus_that_were_declared_are_not_divided_but_judged_by_their_own_names() -> None:
    found = split(conf(*GPU, "server.devices=['4','5']", "publisher.device=cuda:1"), Allocation(("4", "5"), ("n1",)))
    assert (found.server, found.publisher, found.gpu) == (("4", "5"), None, "cuda:5")


def test_outside_a_job_nothing_is_divided() -> None:
    found = split(conf(*GPU), Allocation(None, ()))
    assert (found.server, found.publisher, found.device) == (None, None, "cuda:0")


def test_a_lane_without_a_server_needs_no_gpu() -> None:
    assert devices_needed(conf(*GPU, "lane=L0"), 1) == 0
    assert devices_needed(conf(*GPU, "lane=L1"), 1) == 3


def test_every_server_of_several_needs_gpus_of_its_own() -> None:
    assert devices_needed(conf(*GPU, "lane=L1", "server.replicas=2"), 1) == 5
    found = split(conf(*GPU, "lane=L1", "server.replicas=2"), Allocation(("0", "1", "2", "3", "4"), ("n1",)))
    assert (found.server, found.publisher) == (("0", "1", "2", "3"), ("4",))


def spec(**fields: Any) -> ServerSpec:
    return replace(ServerSpec("gpu", "nccl", 1, 1, 1, None, None), **fields)


def test_a_child_server_sees_nothing_of_the_scheduler() -> None:
    inherited = {"SLURM_PROCID": "1", "SBATCH_X": "1", "SRUN_Y": "1", "SUBMITIT_Z": "1", "PATH": "/bin"}
    found = environment(spec(), inherited)
    assert found["PATH"] == "/bin" and not [
        name for name in found if name.startswith(("SLURM", "SBATCH", "SRUN", "SUB"))
    ]


def test_a_launch_prefix_is_filled_in_and_keeps_what_srun_needs() -> None:
    words = launch_prefix(["srun", "--nodes={nodes}", "{head}", "{hosts}"], ("n7", "n8"), 2)
    assert words[:4] == ("srun", "--nodes=2", "n7", "n7,n8")
    assert command(spec(launch_prefix=words), Path("/m"), "h", 1, "n")[: len(words)] == list(words)
    assert environment(spec(launch_prefix=words), {"SLURM_JOB_ID": "1"})["SLURM_JOB_ID"] == "1"


def test_what_starts_on_a_node_takes_the_first_gpus_and_drops_the_schedulers_variables() -> None:
    env = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "5,3,1", "SLURM_A": "1", "SUBMITIT_B": "1"}
    out = subprocess.run(["bash", "-c", ON_NODE, "2", "env"], env=env, capture_output=True, text=True, check=True)
    assert "CUDA_VISIBLE_DEVICES=5,3\n" in out.stdout and "SLURM" not in out.stdout and "SUBMITIT" not in out.stdout


def test_the_shape_reaches_sbatch() -> None:
    found = parameters(SlurmShape(mem_gb=1.5, cpus_per_task=4, exclusive=True, srun_args=["-l"]), "/w")
    assert found["mem"] == "1536M" and found["exclusive"] is True
    assert found["srun_args"] == ["--nodes=1", "--ntasks=1", "--cpus-per-task=4", "-l"]
    assert found["setup"] == ["export PYTHONSAFEPATH=1 PYTHONPATH=/w"]
    assert "partition" not in found


def test_a_shape_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be shorter than the time limit"):
        make_shape(SlurmShape, {"timeout_min": 1})
    with pytest.raises(ConfigError, match="parallel=0: must be at least 1"):
        make_shape(LocalShape, {"parallel": 0})


@pytest.mark.parametrize("word", ["hydra.launcher.partition=x", "+hydra.launcher.additional_parameters.x=1", "lane=L0"])
def test_known_parameters_pass(word: str) -> None:
    assert unknown_overrides(["hydra/launcher=slurm", word]) == []


def test_another_launcher_is_not_judged() -> None:
    assert unknown_overrides(["hydra/launcher=submitit_slurm", "hydra.launcher.whatever=1"]) == []


def test_states_are_read_as_squeue_and_sacct_write_them() -> None:
    found = parse("12_0|RUNNING|None\n12_1|CANCELLED by 0|0:15\n12_1.batch|FAILED|1:0\n13|COMPLETED|0:0\n")
    assert set(found) == {"12_0", "12_1", "13"}
    assert not found["12_0"].over and found["12_1"].over and found["12_1"].cancelled


def test_a_job_that_nobody_knows_is_over_when_it_was_seen_or_is_overdue(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "slurm", [], settings={"unseen_s": 60.0})
    run = Run(0, [], "0", "s", "d", job="1", submitted=4e9)
    assert state_of(run, {}, sweep) is None
    run.scheduler = "RUNNING"
    assert state_of(run, {}, sweep) is not None
    run.scheduler, run.submitted = None, 0.0
    assert state_of(run, {}, sweep) is not None
    assert state_of(run, {"1": JobState("PENDING")}, sweep) == JobState("PENDING")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed", QueueFull),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", ControllerAway),
        ("sbatch: error: invalid partition specified: x", ConfigError),
    ],
)
def test_sbatch_answers_are_told_apart(said: str, kind: type[Exception]) -> None:
    assert type(classify(said)) is kind


def test_a_job_gets_the_configuration_that_was_composed(tmp_path: Path) -> None:
    whole = {"lane": {"name": "L0"}, "server": {"args": ["${not} an interpolation"]}, "hydra": {"job": {"num": 3}}}
    JobSpec("/d", "/c", ("a",), None, whole).write(tmp_path / "spec.yaml")
    cfg = typed(JobSpec.read(tmp_path / "spec.yaml").config)
    assert OmegaConf.to_container(cfg.server.args, resolve=True) == ["${not} an interpolation"]
    assert cfg.lane.name == "L0" and cfg.hydra.job.num == 3
    assert OmegaConf.get_type(cfg, "lane").__name__ == "LaneConf"


def test_attempts_are_numbered_and_never_used_twice(tmp_path: Path) -> None:
    base = tmp_path / "0"
    assert claim(base) == base
    (base / "run.json").write_text("{}")
    second = claim(base)
    assert second.name == "0.attempt-2" and attempt_number(second) == 2
    assert claim(base).name == "0.attempt-3"
    (second / "run.json").write_text("{}")
    assert attempts_begun(base) == 2 and attempt_directory(base, 1) == base


@pytest.mark.parametrize(
    ("run", "pushed", "refused"),
    [
        ('{"state": "in_progress"}', True, True),
        ('{"state": "complete", "exit_code": 143}', True, True),
        ('{"state": "complete", "exit_code": 10}', True, False),
        ('{"state": "in_progress"}', False, False),
    ],
)
def test_only_a_transaction_without_its_own_end_leaves_a_server_half_done(
    tmp_path: Path, run: str, pushed: bool, refused: bool
) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/run.json").write_text(run)
    if pushed:
        (tmp_path / "r/weight-update-1.json").write_text("{}")
    assert (left_half_done(tmp_path / "r.attempt-2") is not None) is refused
    assert left_half_done(tmp_path / "r") is None


def test_a_verdict_that_is_not_whole_is_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"state": "complete", "exit_code": 0, "verdict": "PASS"}')
    assert read_ending(tmp_path) is None
    (tmp_path / "verdict.json").write_text('{"lanes": []')
    assert read_ending(tmp_path) is None
    (tmp_path / "verdict.json").write_text('{"lanes": []}')
    assert read_ending(tmp_path) == Ending("PASS", 0, "", attempt=1, evidence=str(tmp_path))
    assert read_ending(tmp_path, after=1) is None
    assert not no_verdict("gone").passed


def test_the_sweep_file_reads_as_it_was_written(tmp_path: Path) -> None:
    run = Run(0, ["lane=L0"], "0", "s", "d", ending=no_verdict("gone"), state="ended")
    sweep = Sweep(tmp_path, "slurm", ["vst"], [run, Run(1, [], "1", "s", "d")])
    assert sweep.exit_code is None
    sweep.write()
    assert Sweep.read(tmp_path).runs == sweep.runs
    with pytest.raises(ConfigError, match="not the directory of a sweep"):
        Sweep.read(tmp_path / "elsewhere")


def test_the_plugin_costs_a_plain_command_nothing_heavy() -> None:
    code = "import hydra_plugins.vst_launcher.launcher, sys; print({'submitit', 'torch', 'httpx'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean_env(), check=True)
    assert out.stdout.strip() == "set()"
