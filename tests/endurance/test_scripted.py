"""Lane L6 and several servers against the scripted server, which can be made to fail in the cycle that is wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SHORT = (
    "lane.controls=none",
    "lane.cycles=1",
    "endurance.cycles=3",
    "endurance.answers=2",
    "load.output_tokens=8",
    # So few cycles tell a leak from an allocator only where it is large.
    "endurance.memory_least_bytes=100000000",
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run(cache: Path, out: Path, *overrides: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Exit code, the checks by id (the last of each), and what was printed."""
    where = (f"paths.cache='{cache}'", f"hydra.run.dir='{out}'", "server=scripted")
    command = [sys.executable, "-m", "vst", *where, *overrides]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ, check=False)
    verdict = json.loads((out / "verdict.json").read_text())
    return done.returncode, {check["id"]: check for lane in verdict["lanes"] for check in lane["checks"]}, done.stdout


def fault(**fields: Any) -> str:
    return f"server.faults=['{json.dumps(fields)}']"


def test_a_drift_in_a_later_cycle_is_named_with_its_cycle_and_nothing_is_broken_on_top_of_it(
    cache: Path, tmp_path: Path
) -> None:
    """Updates before it: 2 of L2, 3 of L3, 3 that learn, and then two a cycle."""
    drift = fault(kind="noise", family="mlp_in", amount=0.05, first=2 + 3 + 3 + 2 * 2 + 1)
    code, checks, out = run(cache, tmp_path / "run", "lane=L6", *SHORT, drift)
    assert code == 10, out
    assert checks["cycles.all"]["outcome"] == "fail"
    assert checks["cycles.all"]["reason"].startswith("cycle 3, to B: ")
    assert checks["fault.publisher_killed"]["outcome"] == "inconclusive"
    assert "tainted" in out


def test_a_server_of_two_that_keeps_an_old_tensor_is_the_one_that_is_named(cache: Path, tmp_path: Path) -> None:
    stale = fault(kind="stale", match="lm_head", first=3)
    code, checks, out = run(
        cache, tmp_path / "run", "lane=L3", "server.replicas=2", "lane.controls=none", "lane.cycles=1", stale
    )
    assert code == 10, out
    assert checks["replicas.each"]["outcome"] == "fail"
    assert checks["replicas.each"]["reason"].startswith("server 1: ")
    wrong = [one["seat"] for one in checks["replicas.each"]["observed"] if not one["equal"]]
    assert wrong == ["server 1"]


def test_the_faults_that_are_not_asked_for_are_declared_and_those_that_are_are_made(
    cache: Path, tmp_path: Path
) -> None:
    some = "endurance.faults=[update_refused]"
    code, checks, out = run(
        cache, tmp_path / "run", "lane=L6", *SHORT, "server.replicas=2", some
    )
    assert code == 0, out
    assert checks["fault.update_refused"]["outcome"] == "pass"
    assert checks["fault.hang"]["outcome"] == "not_applicable"
    assert "endurance.faults" in checks["fault.hang"]["reason"]
    assert [one["seat"] for one in checks["recovery.full_push"]["observed"][0]["seats"]] == ["server 1", "server 2"]
    assert checks["fault.update_refused"]["observed"]["servers"][0]["state"] == "tainted"
