"""The product against its own scripted servers: every fault caught by its check, every healthy server passed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from selftest.doubles import double

from e2e.conftest import Run, Vst
from vst.selftest.running import read_verdict
from vst.selftest.table import select, table


@pytest.fixture(scope="module")
def table_run(vst: Vst, request: pytest.FixtureRequest) -> Run:
    """Some rows of one seed; all rows of as many seeds as ``--selftest-seeds`` says, which takes minutes for each."""
    seeds = int(request.config.getoption("--selftest-seeds"))
    wanted = ["lane.rows=all", f"lane.seeds={seeds}"] if seeds else ["lane.rows=quick"]
    return vst("lane=selftest", *wanted, timeout=7200)


def rows(run: Run) -> list[dict[str, Any]]:
    return list(json.loads((run.dir / "selftest.json").read_text())["rows"])


def test_every_fault_is_caught_and_no_alarm_is_false(table_run: Run, request: pytest.FixtureRequest) -> None:
    assert table_run.code == 0, table_run.out
    seeds = int(request.config.getoption("--selftest-seeds"))
    wanted = "all" if seeds else "quick"
    asked = {(row.name, seed) for seed in range(1, (seeds or 1) + 1) for row in select(table(seed), wanted)}
    assert {(row["name"], row["seed"]) for row in rows(table_run)} == asked
    assert {row["result"]["outcome"] for row in rows(table_run)} == {"caught", "passed"}


def test_the_stored_table_is_judged_again_and_comes_out_the_same(table_run: Run) -> None:
    command = [sys.executable, "-m", "vst.provenance", "verify", str(table_run.dir), "--rerun-checks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert f"{len(table_run.verdict['lanes'][0]['checks'])} checks judged again" in done.stdout


def test_no_row_can_be_taken_for_a_run_against_a_vllm(table_run: Run) -> None:
    for row in rows(table_run):
        run = table_run.dir.with_name(f"{table_run.dir.name}.rows") / row["result"]["directory"]
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
    run = vst("lane=selftest", "lane.rows=stale_tensor", "lane.row_timeout_s=0.5", "lane.warm=false")
    assert run.code == 10, run.out
    assert run.check("selftest.complete")["outcome"] == "error"
    assert "no verdict" in run.check("selftest.faults")["reason"]
    assert run.check("fault.stale_tensor")["outcome"] == "error"
