"""A run that is given a source snapshot runs its code, whatever lies where the user happens to be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.conftest import Vst

SOURCE = Path(__file__).parents[2]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """The manifest of a snapshot of a copy of this source; the copy is broken afterwards."""
    repo = tmp_path / "repo"
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("vst", "conf", "launchers"):
        shutil.copytree(SOURCE / name, repo / name, ignore=skip)
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "all")):
        subprocess.run(["git", "-C", str(repo), *words], check=True)
    made = (f"--repo={repo}", "--run-id=one", f"--result-dir={tmp_path}/result", f"--worktree-root={tmp_path}/trees")
    subprocess.run([sys.executable, "-m", "vst.snapshot", "prepare", *made], check=True, cwd=tmp_path)
    (repo / "vst/app.py").write_text("raise SystemExit('the user works on this')")
    return tmp_path / "result/source-manifest.json"


@pytest.mark.parametrize("launcher", ["slurm", "local"])
def test_the_job_imports_from_the_snapshot(vst: Vst, snapshot: Path, launcher: str) -> None:
    words = vst.arguments("-m", "lane=L0", f"snapshot.manifest={snapshot}", launcher=launcher)
    # Relative paths mean the directory where the command was typed, and a vst lies there.
    vst.cwd = vst.cwd / "repo"
    sweep = vst.cwd.parent / "sweep"
    vst.env["PYTHONSAFEPATH"] = "1"  # the launcher itself is the installed one
    code, out = vst(*words)
    assert code == 0, out
    source = json.loads((sweep / "0/verdict.json.meta.json").read_text())["predicate"]["source"]
    assert str(vst.cwd.parent / "trees/one") in json.dumps(source["vst"])


def test_a_snapshot_that_is_not_the_recorded_one_any_more_is_refused_before_it_is_submitted(
    vst: Vst, snapshot: Path
) -> None:
    (vst.cwd / "trees/one/vst/app.py").write_text("changed")
    code, out = vst.slurm("lane=L0", f"snapshot.manifest={snapshot}")
    assert code == 11, out
    assert not vst.file()
