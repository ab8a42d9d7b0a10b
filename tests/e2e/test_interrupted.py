"""A publisher that is killed, an answer that never comes, a run that is killed: nothing is finished or resumed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from e2e.aftermath import TOTAL, left_not_serving, wait_for
from e2e.conftest import Live, Run, Vst
from e2e.proxy import Call, Proxy
from vst.provenance.__main__ import check_run

OWN_PUBLISHER = "publisher.launch_prefix=[]"
"""A publisher that the run itself starts and that is its child: what these tests end."""


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_killed_publisher_leaves_the_server_paused_and_tainted(
    live: Live, vst: Vst, pair: tuple[Path, Path], share: float
) -> None:
    limits = ["transfer.rate_limit_bytes_per_s=300000", "transfer.bucket_bytes=65536"]
    process, out = vst.start("lane=L2", *limits, *live.attach(*pair), OWN_PUBLISHER)
    events = out / "events.jsonl"
    pid = wait_for(events, "publisher_start", lambda event: True, process)["pid"]
    wait_for(events, "publisher_progress", lambda event: event["bytes"] >= share * TOTAL, process)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    text, _ = process.communicate(timeout=60)
    took = time.monotonic() - killed
    run = Run(process.returncode, text, out, took)
    assert run.code == 20, text
    left_not_serving(run, live)
    assert "was killed by signal 9" in run.check("transfer.completed")["reason"]
    assert took < 30
    assert not psutil.pid_exists(pid)
    orphans = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert not [line for line in orphans if {"vst.transfer.child", str(process.pid)} <= set(line)]


def test_update_that_answers_500_is_not_finished_and_not_resumed(live: Live, vst: Vst, pair: tuple[Path, Path]) -> None:
    """Case K16."""

    def refuse(call: Call) -> tuple[int, Any] | None:
        if (call.method, call.path) == ("POST", "/update_weights"):
            return 500, {"error": {"message": "bucket 3 is lost"}}
        return None

    with Proxy(live.url, before=refuse) as proxy:
        run = vst("lane=L2", *live.attach(*pair, proxy.url))
    assert run.code == 10, run.out
    left_not_serving(run, live)
    assert "bucket 3 is lost" in run.check("transfer.completed")["reason"]
    assert "paused" in run.verdict["server"]["left"]


def test_update_that_never_answers_fails_at_the_deadline(live: Live, vst: Vst, pair: tuple[Path, Path]) -> None:
    """Case K17."""

    def hang(call: Call, status: int, body: Any) -> tuple[int, Any]:
        if (call.method, call.path) == ("POST", "/update_weights"):
            time.sleep(60)
        return status, body

    with Proxy(live.url, after=hang) as proxy:
        run = vst("lane=L2", "transfer.timeouts.broadcast_s=4", *live.attach(*pair, proxy.url))
    assert run.code == 10, run.out
    left_not_serving(run, live)
    assert "phase broadcast" in run.check("transfer.completed")["reason"]
    assert "deadline" in run.check("transfer.completed")["reason"]


def test_finish_that_answers_200_with_an_error_is_a_failure(live: Live, vst: Vst, pair: tuple[Path, Path]) -> None:
    def lie(call: Call, status: int, body: Any) -> tuple[int, Any]:
        return (200, {"error": "finalisation failed"}) if call.path == "/finish_weight_update" else (status, body)

    with Proxy(live.url, after=lie) as proxy:
        run = vst("lane=L2", *live.attach(*pair, proxy.url))
    assert run.code == 10, run.out
    assert run.verdict["server"]["state"] == "tainted"
    assert "/resume" not in run.posts()
    assert "finalisation failed" in run.check("transfer.completed")["reason"]


def test_terminated_run_leaves_a_verdict_and_a_paused_server(live: Live, vst: Vst, pair: tuple[Path, Path]) -> None:
    limits = ["transfer.rate_limit_bytes_per_s=300000", "transfer.bucket_bytes=65536"]
    process, out = vst.start("lane=L2", *limits, *live.attach(*pair), OWN_PUBLISHER)
    wait_for(out / "events.jsonl", "publisher_progress", lambda event: event["bytes"] > 0, process)
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    run = Run(process.returncode, text, out, 0.0)
    assert run.code == 143, text
    assert run.verdict["interrupted"] is True
    assert run.verdict["server"]["state"] == "tainted"
    assert httpx.get(f"{live.url}/is_paused", timeout=10, trust_env=False).json()["is_paused"] is True


def test_killed_run_leaves_no_process_behind(vst: Vst) -> None:
    process, out = vst.start("lane=L1")
    event = wait_for(out / "events.jsonl", "server_start", lambda event: True, process)
    port = event["argv"][event["argv"].index("--port") + 1]

    def ours() -> list[psutil.Process]:
        found = []
        for candidate in psutil.process_iter(["cmdline", "environ"]):
            line = " ".join(candidate.info["cmdline"] or [])
            if f"--port {port}" in line or f"vst.transfer.child {process.pid}" in line:
                found.append(candidate)
        return found

    while len(psutil.Process(process.pid).children(recursive=True)) < 4:
        time.sleep(0.1)
    tree = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    psutil.wait_procs(tree, timeout=30)
    assert not [p for p in tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not ours()
    assert json.loads((out / "run.json").read_text())["state"] == "in_progress"


def test_a_second_ctrl_c_ends_at_once_with_a_verdict_and_no_process_left(vst: Vst, pair: tuple[Path, Path]) -> None:
    process, out = vst.start("lane=L1")
    wait_for(out / "events.jsonl", "server_start", lambda event: True, process)
    time.sleep(3)
    members = psutil.Process(process.pid).children(recursive=True)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.4)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    run = Run(process.returncode, text, out, time.monotonic() - begun)
    assert run.code == 130, text
    assert run.verdict["interrupted"] is True and "Traceback" not in text
    assert run.seconds < 30, "longer than a start that nobody interrupts"
    assert len(members) >= 2 and psutil.wait_procs(members, timeout=2)[1] == []
    assert check_run(out).exit_code == 0
