"""That tests which need a GPU are never silently left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpu.conftest import gpus

HERE = Path(__file__).parent


def test_without_gpus_the_tests_are_deselected_counted_and_said_not_to_have_run(tmp_path: Path) -> None:
    base = f"--basetemp={tmp_path / 'base'}"
    argv = [sys.executable, "-m", "pytest", "-q", "--collect-only", base, str(HERE / "test_gpu.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=HERE.parents[1], check=False)
    if gpus() < 1:
        assert "4 deselected" in done.stdout and "4 tests need more GPUs than the 0 of this machine" in done.stdout
    elif gpus() < 2:
        assert "2 deselected" in done.stdout and "2 tests need more GPUs than the 1 of this machine" in done.stdout
    else:
        assert "deselected" not in done.stdout
