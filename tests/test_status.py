from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from report import hostile
from report.stored import lane, write_run
from report.sweeps import write_sweep

from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.run_progress import read_progress
from vst.status import main
from vst.verdict import Check, Outcome


def going_on(path: Path) -> RunDir:
    run = RunDir(path, Request((), (), "sha256:" + "0" * 64))
    run.event("lane", lane="L0", verdict="PASS")
    run.event("step", text="control 3 of 7: B with head kept at A")
    run.event("server_state", before="serving", after="paused")
    run.event("publisher_progress", bytes=4_000_000, total=9_000_000)
    return run


def test_a_run_that_goes_on_shows_lanes_step_state_and_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    going_on(tmp_path / "run")
    assert main([str(tmp_path / "run")]) == 12
    shown = capsys.readouterr().out
    for part in ("not ended", "L0 PASS", "control 3 of 7", "server paused", "sent 4.0 of 9.0 MB", "last sign 0 s ago"):
        assert part in shown
    assert "killed" not in shown


def test_a_run_whose_process_is_gone_says_so_and_is_not_watched_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "import sys, pathlib, test_status; test_status.going_on(pathlib.Path(sys.argv[1]))"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], check=True, env=env)
    assert main([str(tmp_path / "run"), "--watch", "0.1"]) == 12
    assert "it was killed" in capsys.readouterr().out


def test_of_a_process_on_another_host_nothing_is_claimed(tmp_path: Path) -> None:
    going_on(tmp_path / "run")
    file = tmp_path / "run/run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": "elsewhere", "pid": 2**22}))
    assert read_progress(tmp_path / "run").alive is None


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL])
def test_watching_ends_with_the_exit_code_of_a_run_that_ended(tmp_path: Path, outcome: Outcome) -> None:
    write_run(tmp_path / "run", [lane("L0", Check("files.format", outcome, reason="x"))])
    begun = time.monotonic()
    assert main([str(tmp_path / "run"), "--watch"]) == {"pass": 0, "inconclusive": 12, "fail": 10}[outcome.value]
    assert time.monotonic() - begun < 3


def test_watching_sees_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = going_on(tmp_path / "run")

    def finish() -> None:
        server = {"state": "serving", "holds": "model", "left": "stopped"}
        shared = {"verdict": "PASS", "exit_code": 0, "server": server}
        content = {"lane": "L0", "cause": None, "interrupted": False, "lanes": [], **shared}
        run.finish(content, {**shared, "attempt": 1, "error": None})

    later = threading.Timer(0.5, finish)
    later.start()
    assert main([str(tmp_path / "run"), "--watch", "0.1"]) == 0
    later.join()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2 and "not ended" in lines[0] and lines[-1].startswith("PASS  exit code 0")


def test_hostile_text_does_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = going_on(tmp_path / "run")
    for text in hostile.ALL:
        run.event("lane", lane=text, verdict=text)
        run.event("step", text=text)
        main([str(tmp_path / "run")])
    write_run(tmp_path / "ended", [lane("L0", Check("files.format", Outcome.FAIL, reason=hostile.TEXT))])
    assert main([str(tmp_path / "ended")]) == 10
    shown = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in shown) and "\\x1b[2J" in shown
    assert max(map(len, shown.splitlines())) < 2000


def test_what_is_neither_a_run_nor_a_sweep_is_a_usage_error(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2


def test_the_last_look_at_a_sweep_that_nobody_watches_leaves_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = write_sweep(tmp_path / "sweep", ["a", "b"], ["L0"])
    for run in sweep.runs:
        write = tmp_path / "sweep" / run.directory
        (write / "run.json").unlink()
    assert main([str(sweep.path)]) == 0
    assert (sweep.path / "sweep.html").is_file() and "sweep.html" in capsys.readouterr().out
