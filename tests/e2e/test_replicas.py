"""Several servers in one transfer group, and data-parallel ranks in one server: each is updated, asked and judged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from e2e.conftest import Live, Run, Vst
from e2e.test_interrupted import wait_for

TOTAL = 902912


@pytest.fixture(scope="module")
def second(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = Live(pair[0], tmp_path_factory.mktemp("second") / "server.log")
    live.start()
    yield live
    live.stop()


def both(live: Live, pair: tuple[Path, Path], *urls: str) -> list[str]:
    """The overrides of a run that attaches to several servers at once."""
    one = [override for override in live.attach(*pair) if not override.startswith("server.base_url=")]
    return [*one, f"server.base_urls=[{','.join(urls)}]", "lane.controls=none"]


def rejudged(run: Run) -> str:
    command = [sys.executable, "-m", "vst.provenance", "verify", str(run.dir), "--rerun-checks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def each(run: Run, lane: str) -> dict[str, Any]:
    [found] = [
        check
        for one in run.verdict["lanes"]
        if one["lane"] == lane
        for check in one["checks"]
        if check["id"] == "replicas.each"
    ]
    return dict(found)


def test_two_servers_in_one_group_go_to_b_and_back_and_each_is_judged(
    ladder: Run, live: Live, second: Live, vst: Vst, pair: tuple[Path, Path]
) -> None:
    run = vst("lane=L3", "lane.final=model", *both(live, pair, live.url, second.url))
    assert run.code == 0, run.out
    joins = [event for event in run.events("publisher_http") if event["path"] == "/init_weight_transfer_engine"]
    assert sorted(event["server"] for event in joins) == sorted([live.url, second.url])
    for lane, records in (("L1", 2), ("L2", 4), ("L3", 6)):
        judged = each(run, lane)["observed"]
        assert len(judged) == records
        assert {one["seat"] for one in judged} == {live.url, second.url}
        assert {one["largest_difference"] for one in judged} == {0.0}
    assert [one["state"] for one in run.verdict["server"]["servers"]] == ["serving", "serving"]
    assert len({live.now_label(), second.now_label()}) == 1
    assert "0 checks" not in rejudged(run)
    live.label = live.now_label()


def test_a_server_that_dies_in_the_middle_of_an_update_leaves_none_serving(
    ladder: Run, live: Live, second: Live, vst: Vst, pair: tuple[Path, Path]
) -> None:
    limits = ["transfer.rate_limit_bytes_per_s=300000", "transfer.bucket_bytes=65536"]
    process, out = vst.start("lane=L2", *limits, *both(live, pair, live.url, second.url))
    wait_for(out / "events.jsonl", "publisher_progress", lambda event: event["bytes"] >= TOTAL / 3, process)
    assert second.process is not None
    for member in psutil.Process(second.process.pid).children(recursive=True):
        os.kill(member.pid, signal.SIGKILL)
    text, _ = process.communicate(timeout=120)
    run = Run(process.returncode, text, out, 0.0)
    assert run.code in (10, 20), text
    assert run.verdict["verdict"] == "FAIL_CLOSED"
    posts = run.posts()
    assert "/finish_weight_update" not in posts and "/resume" not in posts
    one, other = run.verdict["server"]["servers"]
    assert (one["server"], one["state"]) == (live.url, "tainted")
    assert one["left"].startswith("paused; cleared by a full push that verifies")
    assert (other["server"], other["state"]) == (second.url, "tainted")
    assert "not known to be paused" in other["left"]
    assert httpx.get(f"{live.url}/is_paused", timeout=10, trust_env=False).json()["is_paused"] is True
    assert not second.serving()


def test_data_parallel_ranks_are_asked_one_by_one(ladder: Run, vst: Vst) -> None:
    run = vst("lane=L3", "server.data_parallel_size=2", "lane.controls=none", "lane.cycles=1", "lane.identities=2")
    assert run.code == 0, run.out
    judged = each(run, "L3")["observed"]
    assert [one["seat"] for one in judged] == ["rank 0", "rank 1"] * 3
    assert {one["largest_difference"] for one in judged} == {0.0}
    assert {one["after"] for one in run.check("cache.cold")["observed"]} == {0}
    assert (run.dir / "record-checkpoint-cycle-1@2.json").exists()
    assert "0 checks" not in rejudged(run)
