"""What must hold after a fault on a real server: nothing was finished or resumed, and how the server comes back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx

from e2e.conftest import Live, Recovery, Run
from vst.oracle.compare import difference

TOTAL = 902912


def wait_for(path: Path, kind: str, enough: Any, process: Any, seconds: float = 120) -> dict[str, Any]:
    """The first event of a kind that is enough, read from the growing events of a run."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists():
            for line in path.read_text().splitlines():
                if f'"kind": "{kind}"' in line and line.endswith("}") and enough(json.loads(line)):
                    return dict(json.loads(line))
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    raise AssertionError(f"no {kind} after {seconds} s")


def paused(live: Live) -> bool:
    answer = httpx.get(f"{live.url}/is_paused", timeout=10, trust_env=False).json()
    return answer["is_paused"] is True


def left_not_serving(run: Run, live: Live) -> None:
    """What must hold after every failed transaction."""
    assert run.verdict["verdict"] == "FAIL_CLOSED"
    assert run.verdict["server"]["state"] == "tainted"
    posts = run.posts()
    assert "/finish_weight_update" not in posts
    assert "/resume" not in posts
    assert "tainted" in run.out
    assert paused(live)
    update = json.loads((run.dir / "weight-update-1.json").read_text())
    assert update["outcome"] == "failed"
    assert update["server"]["state"] == "tainted"


def comes_back(live: Live, recovery: Recovery) -> None:
    """One full push of A and a resume, and the server answers exactly as when it was cold."""
    recovery.push(live)
    live.label = live.now_label()
    assert live.cold is not None
    assert difference(live.record(), live.cold, 0.0).equal
