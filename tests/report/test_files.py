"""The pages at the end of a run: after the verdict, within a time limit, and never at the verdict's cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from provenance.stored_run import StoredRun

from vst.provenance.__main__ import check_run
from vst.provenance.atomic import StorageFailure
from vst.provenance.rundir import RunDir
from vst.report.limited import TooSlow, time_limit

HEAVY = ("torch", "vllm", "matplotlib", "scipy")


def blocked(tmp_path: Path, *names: str) -> dict[str, str]:
    """An environment in which these modules cannot be imported."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import sys\nfor name in {names!r}: sys.modules[name] = None\n")
    return {**os.environ, "PYTHONPATH": str(site), "VST_CACHE": str(tmp_path / "cache")}


def command(tmp_path: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", *words]
    return subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_pages_checklist_and_status_need_neither_torch_nor_vllm(tmp_path: Path) -> None:
    env = blocked(tmp_path, *HEAVY)
    done = command(tmp_path, env, "vst", "lane=L0", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/report.html").is_file() and f"{tmp_path}/run/report.html" in done.stdout
    assert command(tmp_path, env, "vst.report", "run").returncode == 0
    assert command(tmp_path, env, "vst.checklist", "run").returncode == 12
    assert command(tmp_path, env, "vst.status", "run").returncode == 0


def test_without_jinja_the_verdict_stands_and_the_run_says_what_is_missing(tmp_path: Path) -> None:
    done = command(tmp_path, blocked(tmp_path, "jinja2"), "vst", "lane=L0", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    assert "report.html was not drawn" in done.stdout and "python -m vst.report" in done.stdout
    assert not (tmp_path / "run/report.html").exists()
    assert '"kind": "page_failed"' in (tmp_path / "run/events.jsonl").read_text()
    assert check_run(tmp_path / "run").exit_code == 0


def test_the_verdict_is_on_the_disk_and_sealed_before_anything_is_drawn(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def draw(path: Path) -> Mapping[str, bytes]:
        seen["verdict"] = json.loads((path / "verdict.json").read_text())["verdict"]
        seen["sealed"] = json.loads((path / "verdict.json.meta.json").read_text())["predicate"]["verdict"]["verdict"]
        seen["state"] = json.loads((path / "run.json").read_text())["state"]
        return {"report.html": b"page", "checklist.md": b"rows"}

    path = StoredRun(tmp_path / "run").finish(draw=draw)
    assert seen == {"verdict": "PASS", "sealed": "PASS", "state": "in_progress"}
    assert check_run(path).exit_code == 0


def test_a_page_that_does_not_fit_on_the_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RunDir.write_bytes

    def full(self: RunDir, name: str, data: bytes) -> Path:
        path = write(self, name, data)
        if name == "report.html":
            raise StorageFailure("no space left on device")
        return path

    monkeypatch.setattr(RunDir, "write_bytes", full)
    path = StoredRun(tmp_path / "run").finish(draw=lambda path: {"report.html": b"page", "checklist.md": b"rows"})
    assert not list(path.glob("report.html*")) and (path / "checklist.md").is_file()
    assert check_run(path).exit_code == 0


def test_drawing_has_a_limit_that_is_gone_afterwards() -> None:
    begun = time.monotonic()
    with pytest.raises(TooSlow), time_limit(0.1):
        while True:
            time.sleep(0.01)
    assert time.monotonic() - begun < 2
    with time_limit(0.1):
        pass
    time.sleep(0.2)


def test_drawing_that_drops_every_exception_is_ended_all_the_same() -> None:
    begun = time.monotonic()
    with pytest.raises(TooSlow), time_limit(0.1):
        for _ in range(2):
            with suppress(Exception):
                time.sleep(5)
        time.sleep(5)
    assert time.monotonic() - begun < 4


def test_drawing_takes_a_fraction_of_a_second(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; begun = time.process_time(); "
        "from vst.report.files import draw_files; draw_files(Path(sys.argv[1])); print(time.process_time() - begun)"
    )
    path = StoredRun(tmp_path / "run").finish()
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.5
