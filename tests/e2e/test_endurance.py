"""Lane L6 on a real CPU server that was attached to: cycles under load, faults in a push, the way back from each."""

from __future__ import annotations

from pathlib import Path

from endurance.alone import climb

from e2e.conftest import Live, Run, Vst

FAULTS = ("publisher_killed", "control_plane_cut", "update_refused", "hang")


def test_cycles_under_load_and_every_fault_end_with_a_server_that_answers_as_it_must(
    ladder: Run, live: Live, vst: Vst, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """The server is not ours, so that it is not killed; that a server of ours is, is seen on the scripted one."""
    assert live.process is not None
    memory = f"server.memory='pid:{live.process.pid}'"
    run = climb(vst.cache, tmp_path / "run", *live.attach(*pair), memory, "lane.final=model")
    assert run.code == 0, run.out
    assert run.check("cycles.all")["observed"] == {"cycles": 3, "changes": 6}
    load = run.check("load.clean")["observed"]
    assert load["bad"] == 0 and load["sent"] == sum(load["kinds"].values())
    for name in FAULTS:
        seen = run.check(f"fault.{name}")
        assert seen["outcome"] == "pass", seen
        assert not {"/finish_weight_update", "/resume"} & set(seen["observed"]["posts"])
    killed = run.check("fault.server_killed")
    assert killed["outcome"] == "not_applicable" and "server.capabilities.kill=false" in killed["reason"]
    ways = {one["fault"]: one["way"] for one in run.check("recovery.full_push")["observed"]}
    assert ways == dict.fromkeys(FAULTS, "push")
    assert live.serving()
    live.label = live.now_label()
    assert "0 checks judged again" not in run.judged_again()
