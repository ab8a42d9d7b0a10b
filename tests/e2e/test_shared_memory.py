"""``transfer=shm`` into a real server: the same proof, and the same end when the publisher dies, as over TCP."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from e2e.aftermath import TOTAL, left_not_serving, wait_for
from e2e.conftest import Live, Run, Vst


def attached(vst: Vst, live: Live, pair: tuple[Path, Path], *overrides: str) -> Run:
    return vst("transfer=shm", *live.attach(*pair), *overrides)


def test_a_push_through_shared_memory_is_proven_like_any_other(
    vst: Vst, live: Live, pair: tuple[Path, Path], ladder: Run
) -> None:
    run = attached(vst, live, pair, "lane=L3", "lane.controls=mlp_in", "transfer.bucket_bytes=65536")
    assert run.code == 0, run.out
    assert run.check("transition.to_b")["outcome"] == run.check("transition.back")["outcome"] == "pass"
    sent = json.loads((run.dir / "weight-update-1.json").read_text())["sent"]
    assert sent["memory"]["receiver"] == 0 and sent["memory"]["sender"] > 0


def test_a_publisher_killed_half_way_ends_as_over_tcp_and_the_server_can_be_brought_back(
    vst: Vst, live: Live, pair: tuple[Path, Path]
) -> None:
    slow = ("transfer.rate_limit_bytes_per_s=300000", "transfer.bucket_bytes=65536")
    process, out = vst.start("lane=L2", "transfer=shm", *slow, *live.attach(*pair))
    pid = wait_for(out / "events.jsonl", "publisher_start", lambda event: True, process)["pid"]
    wait_for(out / "events.jsonl", "publisher_progress", lambda event: 2 * event["bytes"] >= TOTAL, process)
    os.kill(pid, signal.SIGKILL)
    text, _ = process.communicate(timeout=60)
    run = Run(process.returncode, text, out, 0.0)
    assert run.code == 20, text
    left_not_serving(run, live)
    assert "was killed by signal 9" in run.check("transfer.completed")["reason"]
    assert attached(vst, live, pair, "lane=L1").code == 11, "a paused server is refused"
