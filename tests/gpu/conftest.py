"""Tests that need real GPUs: elsewhere they are deselected, counted, and said not to have run."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MISSING = pytest.StashKey[int]()


@cache
def gpus() -> int:
    """How many GPUs this machine has, without a CUDA context in the tests' process."""
    try:
        told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in told.stdout.splitlines()) if told.returncode == 0 else 0


def _needs(item: pytest.Item) -> int:
    marker = item.get_closest_marker("gpu")
    return int(marker.args[0]) if marker and marker.args else 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lacking = [item for item in items if HERE in item.path.parents and item.get_closest_marker("gpu")]
    lacking = [item for item in lacking if _needs(item) > gpus()]
    if lacking:
        config.hook.pytest_deselected(items=lacking)
        config.stash[MISSING] = len(lacking)
        items[:] = [item for item in items if item not in lacking]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lacking = config.stash.get(MISSING, 0)
    if lacking:
        terminalreporter.write_line(
            f"{lacking} tests need more GPUs than the {gpus()} of this machine and did not run: nothing is shown about "
            "staging on a GPU and the real NCCL"
        )
