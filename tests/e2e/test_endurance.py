"""Lane L6 on a real CPU server: cycles under load, every fault that is made, and the way back from each."""

from __future__ import annotations

import json
import subprocess
import sys

from e2e.conftest import Run, Vst

FAULTS = ("publisher_killed", "control_plane_cut", "update_refused", "hang", "server_killed")
SHORT = (
    "lane.controls=none",
    "lane.cycles=1",
    "endurance.cycles=3",
    "endurance.answers=2",
    "load.output_tokens=8",
    # So few cycles tell a leak from an allocator only where it is large.
    "endurance.memory_least_bytes=100000000",
)


def test_cycles_under_load_and_every_fault_end_with_a_server_that_answers_as_it_must(ladder: Run, vst: Vst) -> None:
    run = vst("lane=L6", *SHORT, timeout=900)
    assert run.code == 0, run.out
    assert run.check("cycles.all")["observed"] == {"cycles": 3, "changes": 6}
    load = run.check("load.clean")["observed"]
    assert load["bad"] == 0 and load["claims"]["A"] >= 9 and load["claims"]["B"] >= 9
    assert load["sent"] == sum(load["kinds"].values())
    for name in FAULTS:
        seen = run.check(f"fault.{name}")
        assert seen["outcome"] == "pass", seen
        assert not {"/finish_weight_update", "/resume"} & set(seen["observed"]["posts"])
    ways = {one["fault"]: one["way"] for one in run.check("recovery.full_push")["observed"]}
    assert set(ways) == set(FAULTS)
    assert ways["server_killed"] == "restart"
    assert ways["publisher_killed"] == ways["hang"] == "push"
    phases = json.loads((run.dir / "endurance.json").read_text())["phases"]
    assert {"pause", "push.broadcast", "push.finish", "resume"} <= set(phases)
    assert {one["n"] for one in phases.values()} == {6}
    command = [sys.executable, "-m", "vst.provenance", "verify", str(run.dir), "--rerun-checks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
