"""Sweeps as processes of this machine, and what a launcher refuses before anything is sent out."""

from __future__ import annotations

import json
import os
import signal
import stat
import time

from cluster.conftest import Vst
from cluster.gate import Gate


def test_runs_go_one_after_the_other_unless_more_are_asked_for(local: Vst) -> None:
    code, out = local("-m", "lane=L0", "oracle.seed=1,2,3", f"hydra.sweep.dir={local.sweep}")
    assert code == 0, out + local.logs()
    spans = []
    for number in range(3):
        run = json.loads((local.sweep / f"{number}/run.json").read_text())
        spans.append((run["started"], run["ended"]))
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False))


def test_two_runs_at_once(local: Vst) -> None:
    gates = [Gate(local.cwd / str(number)) for number in range(3)]
    lefts = ",".join(str(gate.pipe) for gate in gates)
    words = ("lane=compare", f"lane.left={lefts}", gates[0].words[2], f"hydra.sweep.dir={local.sweep}")
    launcher = local.start("-m", *words, "hydra.launcher.parallel=2")
    local.until_begun("0")
    local.until_begun("1")
    time.sleep(1)
    assert not (local.sweep / "2").exists()
    gates[1].open()
    local.until_begun("2")
    gates[2].open()
    gates[0].open()
    out, _ = launcher.communicate(timeout=30)
    assert launcher.returncode == 0, out + local.logs()


def test_one_killed_process_loses_no_other_result(local: Vst, gate: Gate) -> None:
    sweep = f"hydra.sweep.dir={local.sweep}"
    launcher = local.start("-m", "lane=compare,L0", *gate.words[1:], sweep)
    run = local.until_begun("0")
    os.kill(json.loads((run / "run.json").read_text())["pid"], signal.SIGKILL)
    out, _ = launcher.communicate(timeout=30)
    assert launcher.returncode == 20, out
    assert [one["ending"]["exit_code"] for one in local.runs()] == [20, 0]


def test_ctrl_c_ends_the_runs_with_their_verdicts(local: Vst, gate: Gate) -> None:
    launcher = local.start("-m", *gate.words, "oracle.seed=1,2", f"hydra.sweep.dir={local.sweep}")
    run = local.until_begun("0")
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=30)
    assert launcher.returncode == 130, out
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["interrupted"] and verdict["verdict"] == "FAIL_CLOSED"
    assert not (local.sweep / "1").exists()
    assert "not submitted" in local.runs()[1]["ending"]["reason"]


def test_a_killed_launcher_leaves_no_process(local: Vst, gate: Gate) -> None:
    launcher = local.start("-m", *gate.words, f"hydra.sweep.dir={local.sweep}")
    pid = json.loads((local.until_begun("0") / "run.json").read_text())["pid"]
    launcher.kill()
    end = time.monotonic() + 15
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < end, "the run outlived its launcher"
        time.sleep(0.1)
    code, _ = local(str(local.sweep), module="vst.status")
    assert code == 143


def test_an_unknown_parameter_is_answered_with_the_valid_ones(local: Vst) -> None:
    code, out = local("hydra/launcher=slurm", "hydra.launcher.partiton=gpu", "lane=L0")
    assert code == 2
    assert "hydra.launcher.partiton is unknown (did you mean partition?); valid are:" in out
    assert "signal_delay_s (default: 120)" in out and "additional_parameters.NAME=VALUE" in out


def test_a_dry_run_without_a_launcher_is_refused_rather_than_run(local: Vst) -> None:
    code, out = local("lane=L0", "launch.dry_run=true")
    assert code == 2 and "launch.dry_run needs a launcher" in out
    assert not list(local.cwd.rglob("run.json"))


def test_a_directory_for_single_runs_means_nothing_to_jobs(local: Vst) -> None:
    code, out = local("hydra/launcher=slurm", "lane=L0", "hydra.run.dir=here")
    assert code == 2 and "hydra.run.dir has no meaning for jobs" in out


def test_local_processes_are_never_left_alone(local: Vst) -> None:
    code, out = local("-m", "lane=L0", "launch.wait=false")
    assert code == 2 and "launch.wait=false" in out


def test_runs_that_would_share_a_directory_are_refused(local: Vst) -> None:
    code, out = local("-m", "lane=L0", "oracle.seed=1,2", "hydra.sweep.subdir=same")
    assert code == 2 and "runs 0 and 1 would share the directory same" in out


def test_secrets_are_in_no_file_that_others_can_read(local: Vst) -> None:
    secret = "hunter2hunter2"
    words = ("-m", "lane=L0", f"+server.env.MY_TOKEN={secret}", f"hydra.sweep.dir={local.sweep}")
    code, out = local(*words)
    assert code == 0, out
    holding = [path for path in local.sweep.rglob("*") if path.is_file() and secret in path.read_text(errors="ignore")]
    assert [path.name for path in holding] == ["run-0.yaml"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
    assert secret not in out


def test_an_attached_server_that_an_earlier_attempt_left_half_done_is_refused(local: Vst) -> None:
    first = local.cwd / "run"
    first.mkdir()
    (first / "run.json").write_text(json.dumps({"state": "in_progress"}))
    (first / "weight-update-1.json").write_text("{}")
    second = local.cwd / "run.attempt-2"
    address = ("server=attach", "server.base_url=http://127.0.0.1:9")
    code, out = local("lane=L1", *address, f"hydra.run.dir={second}")
    assert code == 11, out
    assert "run had begun a transaction on this server and was ended" in out


def test_a_sweep_in_batches_is_one_sweep(local: Vst) -> None:
    batches = ("hydra.sweeper.max_batch_size=2", "oracle.seed=1,2,3", f"hydra.sweep.dir={local.sweep}")
    code, out = local("-m", "lane=L0", *batches)
    assert code == 0, out
    assert [run["number"] for run in local.runs()] == [0, 1, 2]
    assert local.file()["exit_code"] == 0


def test_a_sweep_can_be_followed_as_json_lines(local: Vst) -> None:
    code, out = local("-m", "lane=L0", "console=json", "checkpoint.finite=auto,never", f"hydra.sweep.dir={local.sweep}")
    assert code == 0, out
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events if event["event"] != "step"] == ["run", "run", "sweep"]
    sweep = next(event for event in events if event["event"] == "sweep")
    assert sweep["exit_code"] == 0 and [run["ending"]["verdict"] for run in sweep["runs"]] == ["PASS", "PASS"]
