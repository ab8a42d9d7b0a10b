"""A machine on which SLURM cannot be installed is told so, with the number of tests that this costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import slurm_install

TESTS = Path(__file__).parents[1]
WITHOUT = """\
import os, sys
sys.path.insert(0, {tests!r})
from cluster import slurm_install
slurm_install.which = lambda program: None
os.geteuid = lambda: 1000
from cluster.conftest import *
"""


def test_without_root_the_reason_and_the_command_to_run_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_install, "which", lambda program: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    problem = slurm_install.install(accounting=False)
    assert problem and problem.startswith("SLURM is not installed and cannot be: as root run apt-get install")
    assert problem.endswith("munge slurm-client slurmctld slurmd")


def test_tests_that_need_it_are_counted_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "cluster/conftest.py").write_text(WITHOUT.format(tests=str(TESTS)))
    (tmp_path / "cluster/test_some.py").write_text(
        "def test_one(cluster): ...\ndef test_two(cluster): ...\ndef test_other(): ...\n"
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout
    assert "1 passed, 2 errors" in done.stdout
    assert "2 tests did not run, so nothing is shown by them: SLURM is not installed" in done.stdout
