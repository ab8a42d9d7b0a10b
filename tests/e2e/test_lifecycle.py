"""The moves around an update on a real vLLM: lane L4, the chains of lane ``lifecycle``, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from e2e.conftest import Live, Run, Vst
from vst.server.lifecycle import RESETS

QUICK = ("lane.controls=none", "lane.cycles=1")
UPDATE = ["/start_weight_update", "/update_weights", "/finish_weight_update"]


@pytest.fixture(scope="module")
def l4(vst: Vst) -> Run:
    """Lane L4 on the embedded pair, with a server of its own and the declarations of ``server=cpu``."""
    return vst("lane=L4", *QUICK, timeout=900)


def test_l4_passes_on_a_cpu_server_and_says_why_its_memory_is_not_judged(l4: Run) -> None:
    assert l4.code == 0, l4.out
    assert [lane["lane"] for lane in l4.verdict["lanes"]] == ["L0", "L1", "L2", "L3", "L4"]
    memory = l4.check("sleep.memory")
    assert memory["outcome"] == "not_applicable" and "frees nothing" in memory["reason"]
    assert "server.capabilities.sleep=flags" in " ".join(l4.out.split())
    others = [check for check in l4.verdict["lanes"][-1]["checks"] if check["id"] != "sleep.memory"]
    assert [check["outcome"] for check in others] == ["pass"] * 12
    assert l4.verdict["server"]["holds"] == "checkpoint"


def test_streams_that_a_keep_froze_on_a_real_vllm_equal_the_unpaused_run(l4: Run) -> None:
    """K27, with the caches emptied and kept."""
    for name in ("keep", "keep-cache"):
        frozen = l4.check("pause.keep")["observed"][name]["frozen"]
        assert not any(one["during"] or one["fault"] for one in frozen)
        assert any(one["before"] and one["after"] and one["kind"] == "whole" for one in frozen)


def test_what_became_of_requests_that_knocked_is_recorded_for_every_state(l4: Run) -> None:
    """K28: vLLM 0.32 holds them in every mode."""
    knocks = l4.check("pause.admission")["observed"]
    assert {name: one["policy"] for name, one in knocks.items()} == dict.fromkeys(knocks, "held")
    assert {"keep", "abort", "wait", "asleep-2"} < set(knocks)


def test_after_a_level_2_sleep_everything_but_the_way_to_a_push_was_refused_and_not_sent(l4: Run) -> None:
    """K22."""
    tried = l4.check("wake.level2_needs_push")["observed"]
    assert {one["step"] for one in tried} == {"wake", "wake(kv_cache)", "resume", "ask", "push"}
    assert all(one["sent"] == 0 and "is refused" in one["refused"] for one in tried)


def test_the_whole_chain_was_made_in_order_with_streams_in_flight(l4: Run) -> None:
    steps = json.loads((l4.dir / "chain-order.json").read_text())["steps"]
    assert [step["step"] for step in steps] == [
        *("abort", "reset", "sleep(2)", "wake(weights)", "pause(keep)", "reset", "push(checkpoint)"),
        *("wake(kv_cache)", "reset", "resume"),
    ]
    load = l4.check("lifecycle.order")["observed"]["load"]
    assert load["bad"] == 0 and load["claims"]["B"] >= 1


def test_a_bundle_of_l4_is_judged_again_from_its_files(l4: Run) -> None:
    command = [sys.executable, "-m", "vst.provenance", "verify", str(l4.dir), "--rerun-checks"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((l4.dir / "lifecycle-found.json").read_text())
    acts = ("pauses", "weights-first", "cache-first", "at-once", "level-2", "order", "idempotent")
    assert set(found["answers"]) == set(acts) and found["broken"] is None


def test_a_server_whose_sleep_frees_nothing_fails_when_that_is_not_declared(
    vst: Vst, live: Live, pair: tuple[Path, Path]
) -> None:
    assert live.process is not None
    sleep = ("server.capabilities.sleep=memory", f"server.memory=pid:{live.process.pid}")
    run = vst("lane=L4", *live.attach(*pair), *QUICK, *sleep, "lane.final=model", timeout=900)
    assert run.code == 10, run.out
    checks = run.verdict["lanes"][-1]["checks"]
    assert [check["id"] for check in checks if check["outcome"] != "pass"] == ["sleep.memory"]
    assert "a sleep without effect" in run.check("sleep.memory")["reason"]
    assert str(live.process.pid) in run.check("sleep.memory")["observed"]["source"]


def test_a_chain_is_made_step_by_step_and_leaves_a_server_that_serves(
    vst: Vst, live: Live, pair: tuple[Path, Path]
) -> None:
    run = vst("lane=lifecycle", *live.attach(*pair))
    assert run.code == 0, run.out
    posts = [path for path in run.posts() if path != "/init_weight_transfer_engine"]
    assert posts[:5] == ["/abort_requests", *RESETS, "/sleep"] and posts[-1] == "/resume"
    assert [path for path in posts if path in UPDATE] == UPDATE
    assert live.serving() and run.verdict["server"] == {"state": "serving", "holds": "checkpoint", "left": "serving"}
    assert live.now_label() == json.loads((run.dir / "weight-update-1.json").read_text())["label"]["set"]


def write_plan(vst: Vst, name: str, steps: list[str]) -> str:
    path = vst.runs / f"{name}.json"
    path.write_text(json.dumps({"format": "vst-plan/1", "steps": steps}))
    return f"lane.plan='{path}'"


def test_an_illegal_chain_is_refused_before_anything_is_sent(vst: Vst, live: Live, pair: tuple[Path, Path]) -> None:
    plan = write_plan(vst, "illegal", ["sleep(1)", "wake(weights)", "resume"])
    run = vst("lane=lifecycle", *live.attach(*pair), plan)
    assert run.code == 11, run.out
    assert "wake the cache first: to resume without it is a crash" in run.check("lifecycle.legal")["reason"]
    assert run.posts() == [] and live.untouched()


@contextmanager
def traffic(live: Live) -> Iterator[None]:
    """Streams in flight, one after the other, until the block is left; the server must be able to answer then."""
    over = threading.Event()
    body = {"model": "tiny", "prompt": list(range(5, 20)), "max_tokens": 400, "ignore_eos": True, "stream": True}

    def ask() -> None:
        with httpx.Client(timeout=120, trust_env=False) as http:
            while not over.is_set():
                http.post(f"{live.url}/v1/completions", json=body)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        httpx.post(f"{live.url}/resume", timeout=30, trust_env=False)
        thread.join(120)


def test_caches_whose_blocks_frozen_work_holds_cannot_be_reset_and_the_server_is_not_resumed(
    vst: Vst, live: Live, pair: tuple[Path, Path]
) -> None:
    plan = write_plan(vst, "held", ["pause(keep, keep_cache)", "reset(running)", "reset", "resume", "resume",
                                    "resume", "pause(keep, keep_cache)", "reset", "resume"])  # fmt: skip
    with traffic(live):
        run = vst("lane=lifecycle", *live.attach(*pair), plan)
        assert run.code == 10, run.out
        assert "step 8, reset: " in run.check("lifecycle.steps")["reason"]
        assert "success is false" in run.check("lifecycle.steps")["reason"]
        assert run.posts()[-1] == "/pause" and run.verdict["server"]["state"] == "tainted"


def test_a_plan_that_asks_is_replayed_and_compared_with_the_reference(
    vst: Vst, live: Live, pair: tuple[Path, Path]
) -> None:
    steps = ["ask", "pause(wait)", "reset", "push", "resume", "ask", "sleep(1)", "wake", "resume"]
    plan = write_plan(vst, "asks", steps)
    run = vst("lane=lifecycle", *live.attach(*pair), plan)
    assert run.code == 0, run.out
    made = json.loads((run.dir / "chain-lifecycle.json").read_text())["steps"]
    asked = [step["result"] for step in made if step["step"] == "ask"]
    assert [step["step"] for step in made] == steps
    assert [(one["holds"], one["equal"]) for one in asked] == [("model", True), ("checkpoint", True)]
