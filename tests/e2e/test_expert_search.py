"""Experts that the first probes do not reach are searched for with further ones, on a scripted server with experts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from e2e.conftest import Vst
from e2e.test_diagnose import experts


def test_experts_that_short_probes_do_not_reach_are_searched_for(vst: Vst, cache: Path) -> None:
    # With this seed two experts of four are in no layer among those that the two tokens are routed to.
    lengths = ("oracle.min_tokens=2", "oracle.max_tokens=2", "oracle.output_tokens=1")
    short = ("oracle.probes=1", "oracle.seed=11", *lengths)
    blind = vst("lane=L3", *experts(cache), *short, "oracle.search=0")
    unseen = [c["id"] for lane in blind.verdict["lanes"] for c in lane["checks"] if c["outcome"] == "inconclusive"]
    assert unseen == ["control.expert_2", "control.expert_3"], blind.out
    assert blind.verdict["covered"]["experts"] == "2 of 4"
    run = vst("lane=L3", *experts(cache), *short, "oracle.search=8")
    assert run.code == 0, run.out
    assert run.verdict["covered"]["experts"] == "4 of 4"
    assert all(run.check(id)["observed"]["more"] >= 1 for id in unseen)
    command = [sys.executable, "-m", "vst.provenance", "verify", str(run.dir), "--rerun-checks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
