"""Lane diagnose against scripted servers whose faults are known."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.conftest import Run, Vst
from vst.selftest.pairs import make_pair


def fault(**fields: object) -> str:
    return f"server.faults=['{json.dumps(fields)}']"


def found(run: Run) -> dict[str, object]:
    return dict(json.loads((run.dir / "diagnosis.json").read_text()))


def experts(cache: Path) -> tuple[str, ...]:
    a, b = make_pair("experts", cache)
    return ("model=local", f"model.path='{a}'", f"checkpoint.path='{b}'", "server=scripted")


def test_a_stale_family_is_named_and_no_other_is(vst: Vst) -> None:
    run = vst("lane=diagnose", "server=scripted", fault(kind="stale", match="lm_head"))
    diagnosis = found(run)
    assert run.code == 10, run.out
    assert (diagnosis["mode"], diagnosis["tensors"]) == ("transition", ["lm_head.weight"])
    assert diagnosis["minimal"] is True and run.check("diagnose.identity")["outcome"] == "pass"
    # The double has no reload from disk: that is said, and the set is named all the same.
    assert run.check("diagnose.reload")["outcome"] == "inconclusive"
    assert run.verdict["server"]["state"] == "tainted"


def test_experts_that_every_update_spoils_are_named_by_identity_alone(vst: Vst, cache: Path) -> None:
    run = vst("lane=diagnose", *experts(cache), fault(kind="noise", match=r"\.experts\.", amount=0.2))
    diagnosis = found(run)
    assert (diagnosis["mode"], diagnosis["why"]) == ("identity", ["experts"]), run.out
    assert diagnosis["parts"] == ["model.layers.*.block_sparse_moe experts"]
    assert run.check("diagnose.to_b")["outcome"] == "inconclusive"


def test_a_healthy_server_passes_after_two_pushes(vst: Vst) -> None:
    run = vst("lane=diagnose", "server=scripted")
    assert run.code == 0, run.out
    assert found(run)["pushes"] == 2 and run.verdict["server"]["state"] == "serving"
