"""The product against its own scripted servers: every fault caught by its check, every healthy server passed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from selftest.doubles import double

from e2e.conftest import Run, Vst
from vst.selftest.running import read_verdict


@pytest.fixture(scope="module")
def quick(vst: Vst) -> Run:
    return vst("lane=selftest", "lane.rows=quick")


def rows(run: Run) -> list[dict[str, object]]:
    return list(json.loads((run.dir / "selftest.json").read_text())["rows"])


def test_every_fault_of_the_quick_rows_is_caught_and_nothing_else_is(quick: Run) -> None:
    assert quick.code == 0, quick.out
    assert quick.check("selftest.faults")["observed"] == "14 of 14 faults caught"
    assert quick.check("selftest.healthy")["observed"] == "2 of 2 healthy servers passed"
    outcomes = {row["result"]["outcome"] for row in rows(quick)}  # type: ignore[index]
    assert outcomes == {"caught", "passed"}


def test_no_row_can_be_taken_for_a_run_against_a_vllm(quick: Run) -> None:
    for row in rows(quick):
        run = quick.dir.with_name(f"{quick.dir.name}.rows") / str(row["result"]["directory"])  # type: ignore[index]
        verdict = read_verdict(run)
        assert verdict is not None
        checks = {check["id"]: check for lane in verdict["lanes"] for check in lane["checks"]}
        assert checks["server.dialect"]["observed"].endswith("+vst.scripted")
        assert "not a vLLM" in checks["server.dialect"]["warnings"][0]


def test_a_scripted_server_is_refused_where_a_vllm_was_asked_for(vst: Vst, pair: tuple[Path, Path]) -> None:
    a, b = pair
    model = ("model=local", f"model.path='{a}'", f"checkpoint.path='{b}'", "server.served_model_name=m")
    with double(a) as asked:
        words = ("lane=L1", "server=attach", f"server.base_url={asked.url}", *model)
        refused, accepted = vst(*words), vst(*words, "server.scripted=true")
    assert refused.code == 11, refused.out
    assert "scripted" in refused.check("server.dialect")["reason"]
    assert accepted.code == 0, accepted.out


def test_a_row_without_a_verdict_is_not_a_fault_that_was_caught(vst: Vst) -> None:
    run = vst("lane=selftest", "lane.rows=stale_tensor", "lane.row_timeout_s=0.5")
    assert run.code == 10, run.out
    assert run.check("selftest.complete")["outcome"] == "error"
    assert "no verdict" in run.check("selftest.faults")["reason"]
    assert run.check("fault.stale_tensor")["outcome"] == "error"


def test_the_whole_table_is_caught(vst: Vst, request: pytest.FixtureRequest) -> None:
    """Minutes for each seed: run by hand with ``--selftest-seeds=3``."""
    seeds = int(request.config.getoption("--selftest-seeds"))
    wanted = ["lane.rows=all", f"lane.seeds={seeds}"] if seeds else ["lane.rows='healthy_two_*,rank_not_updated'"]
    run = vst("lane=selftest", *wanted, timeout=3600)
    assert run.code == 0, run.out
