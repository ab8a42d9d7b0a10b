"""Faults of everything around a real vLLM: after each no finish, no resume, the deadline kept, the state written down,
and the server either comes back by one full push, verified, or is said to need a restart."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from e2e.aftermath import TOTAL, comes_back, left_not_serving, paused, wait_for
from e2e.conftest import Live, Recovery, Run, Vst
from e2e.cut import Cut, Harm
from e2e.proxy import Call, Proxy
from vst.checkpoint.manifest import read_manifest
from vst.provenance.verify import verify
from vst.transfer.publisher import PublisherFailed

Pair = tuple[Path, Path]
HOST = str(Path(__file__).parent / "strange_host")
SLOWLY = ["transfer.rate_limit_bytes_per_s=600000", "transfer.bucket_bytes=65536"]
"""A push that takes 1.5 s."""
SHORT = ["transfer.timeouts.start_s=3", "transfer.timeouts.broadcast_s=2", "transfer.timeouts.finish_s=5"]
ONE_BY_ONE = "transfer.bucket_bytes=1"
"""A bucket for each tensor."""
SENT_S = 1.0
"""In which what was read before a read that stalls is sent, on a busy machine too."""

BETWEEN, INSIDE = "model.layers.0.self_attn.k_proj.weight", "model.layers.0.mlp.up_proj.weight"
"""The first tensor of a module, and the second one of a module that vLLM fuses from two."""


@pytest.fixture
def strange(vst: Vst, tmp_path: Path) -> Callable[..., Vst]:
    """Runs on a host whose clock or storage is not as it should be."""
    return lambda **env: replace(vst, extra={"PYTHONPATH": HOST, **env}, runs=tmp_path)


def given_up_after(run: Run) -> float:
    """Seconds of the monotonic clock from the beginning of the broadcast to the moment when the server was given up."""
    begun = next(event["monotonic"] for event in run.events("publisher_phase") if event["phase"] == "broadcast")
    tainted = next(event["monotonic"] for event in run.events("server_state") if event["after"] == "tainted")
    return float(tainted - begun)


def stop_publisher_before(tensor: str, live: Live, strange: Callable[..., Vst], pair: Pair, told: Path) -> Run:
    """A run whose publisher gets SIGSTOP when all tensors before ``tensor`` were sent; the wall clock steps back."""
    place = next(one for one in read_manifest(pair[0]).tensors if one.name == tensor)
    vst = strange(VST_TEST_CLOCK=f"-86400@{told}", VST_TEST_STALL=f"{place.shard}:{place.offset}@{told}")
    process, out = vst.start("lane=L2", ONE_BY_ONE, *SHORT, *live.attach(*pair))
    pid = wait_for(out / "events.jsonl", "publisher_start", lambda event: True, process)["pid"]
    until = time.monotonic() + 120
    while not told.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(SENT_S)
    os.kill(pid, signal.SIGSTOP)
    text, _ = process.communicate(timeout=60)
    run = Run(process.returncode, text, out, 0.0)
    assert run.code == 10, text
    left_not_serving(run, live)
    reason = run.check("transfer.completed")["reason"]
    assert "phase broadcast" in reason and "before its deadline" in reason
    assert 2 <= given_up_after(run) < 15
    assert not psutil.pid_exists(pid)
    return run


def test_stopped_publisher_is_given_up_at_its_deadline_and_the_server_comes_back(
    live: Live, strange: Callable[..., Vst], pair: Pair, tmp_path: Path, recovery: Recovery
) -> None:
    """The monotonic clock holds the deadline; the wall clock steps back by a day meanwhile."""
    run = stop_publisher_before(BETWEEN, live, strange, pair, tmp_path / "stalled")
    assert len({event["utc"][:10] for event in run.events("http")}) == 2, "the clock was not seen to step"
    assert "cleared by a full push that verifies" in run.verdict["server"]["left"]
    comes_back(live, recovery)


def test_starved_publisher_that_goes_on_too_slowly_is_given_up_at_its_deadline(
    live: Live, strange: Callable[..., Vst], pair: Pair, recovery: Recovery
) -> None:
    """Each read of a tensor takes most of a second: bytes keep coming, and never enough of them."""
    run = strange(VST_TEST_READ_S="0.9")("lane=L2", *SHORT, ONE_BY_ONE, *live.attach(*pair))
    assert run.code == 10, run.out
    left_not_serving(run, live)
    reason = run.check("transfer.completed")["reason"]
    assert "phase broadcast" in reason and "before its deadline" in reason
    assert run.events("publisher_progress"), "it was not seen to go on"
    assert 2 <= given_up_after(run) < 15
    comes_back(live, recovery)


def test_slow_control_plane_and_a_wall_clock_that_jumps_are_no_faults(
    live: Live, strange: Callable[..., Vst], pair: Pair, tmp_path: Path
) -> None:
    def delay(method: str, path: str) -> Harm:
        if path == "/start_weight_update":
            (tmp_path / "step").touch()
        return Harm("delay", seconds=0.05)

    with Cut("127.0.0.1", live.port, delay) as proxy:
        run = strange(VST_TEST_CLOCK=f"86400@{tmp_path / 'step'}")("lane=L2", *live.attach(*pair, proxy.url))
    assert run.code == 0, run.out
    events = [json.loads(line) for line in (run.dir / "events.jsonl").read_text().splitlines()]
    assert len({event["utc"][:10] for event in events}) == 2, "the clock was not seen to jump"
    assert [event["monotonic"] for event in events] == sorted(event["monotonic"] for event in events)
    assert verify(run.dir).findings == []


CUTS: dict[str, tuple[str, Harm, str, int, tuple[str, ...]]] = {
    "start swallowed": ("/start_weight_update", Harm("drop", reaches=False), "phase start", 10, ()),
    "finish cut short": ("/finish_weight_update", Harm("truncate", keep=150), "phase finish", 20, ("finish",)),
    "resume reset": ("/resume", Harm("reset"), "/resume", 20, ("finish", "resume")),
}
"""Where the control plane is cut, how, what the reason names, the exit code, and what had been sent by then."""


@pytest.mark.parametrize("name", CUTS)
def test_control_plane_that_is_cut_leaves_the_server_paused_and_tainted(
    name: str, live: Live, vst: Vst, pair: Pair, recovery: Recovery
) -> None:
    path, harm, told, code, sent = CUTS[name]
    with Cut("127.0.0.1", live.port, lambda method, at: harm if (method, at) == ("POST", path) else None) as proxy:
        run = vst("lane=L2", *SHORT, *live.attach(*pair, proxy.url))
    assert run.code == code, run.out
    assert run.verdict["verdict"] == "FAIL_CLOSED"
    assert run.verdict["server"]["state"] == "tainted"
    assert told in run.check("transfer.completed")["reason"]
    after = proxy.seen[proxy.seen.index(f"POST {path}") + 1 :]
    assert not {"POST /resume", "POST /finish_weight_update", "POST /start_weight_update"} & set(after)
    assert ("POST /finish_weight_update" in proxy.seen) == ("finish" in sent)
    assert ("POST /resume" in proxy.seen) == ("resume" in sent)
    assert paused(live)
    assert json.loads((run.dir / "weight-update-1.json").read_text())["outcome"] == "failed"
    comes_back(live, recovery)


def test_disk_that_fills_up_in_the_middle_of_a_push_leaves_the_server_paused_and_what_was_written_readable(
    live: Live, vst: Vst, pair: Pair, tmp_path: Path
) -> None:
    """The run directory is a small file system of its own, which the test fills when the update begins."""
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    process: list[subprocess.Popen[str]] = []
    posted: list[str] = []

    def fill(call: Call) -> None:
        posted.extend([call.path] if call.method == "POST" else [])
        if (call.method, call.path) == ("POST", "/update_weights"):
            # The file system is in the namespace of the run.
            fill_up(Path(f"/proc/{process[0].pid}/root{disk}/filler"))

    with Proxy(live.url, before=fill) as proxy:
        argv = [sys.executable, "-m", "vst", f"paths.cache='{vst.cache}'", f"hydra.run.dir='{disk / 'run'}'"]
        line = shlex.join([*argv, "lane=L2", *SLOWLY, *live.attach(*pair, proxy.url)])
        mount = f"mount -t tmpfs -o size=4m tmpfs {disk} || exit 99"
        script = f"{mount}; {line}; code=$?; cp -a {disk}/run {kept}; exit $code"
        own = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        process.append(
            subprocess.Popen(
                ["unshare", *own, "--mount", "sh", "-c", script],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
            )
        )  # fmt: skip
        text, _ = process[0].communicate(timeout=200)
    assert process[0].returncode == 20, text
    assert "No space left on device" in text and "free space" in text
    assert "Traceback" not in text
    assert posted.index("/update_weights") < len(posted) - 1 and posted[-1] == "/pause"
    assert not {"/finish_weight_update", "/resume"} & set(posted)
    assert paused(live)
    report = verify(kept)
    assert report.findings == [] and report.incomplete is not None, report.lines()


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 512)


def test_worker_that_is_killed_in_a_push_ends_the_run_and_a_restart_is_said_to_be_needed(
    live: Live, vst: Vst, pair: Pair
) -> None:
    process, out = vst.start("lane=L2", *SLOWLY, *SHORT, *live.attach(*pair))
    wait_for(out / "events.jsonl", "publisher_progress", lambda event: event["bytes"] > TOTAL / 5, process)
    assert live.process is not None
    engine = [one for one in psutil.Process(live.process.pid).children(recursive=True) if "VLLM::" in one.name()]
    assert engine, "no process of vLLM's engine was found"
    engine[-1].kill()
    killed = time.monotonic()
    text, _ = process.communicate(timeout=90)
    run = Run(process.returncode, text, out, time.monotonic() - killed)
    live.stop()
    assert run.code in (10, 20), text
    assert run.verdict["verdict"] == "FAIL_CLOSED"
    assert run.verdict["server"]["state"] in ("tainted", "dead")
    assert not {"/finish_weight_update", "/resume"} & set(run.posts())
    assert run.seconds < 60
    left = run.verdict["server"]["left"]
    # What still answers is asked to pause and cannot; soon after it is gone altogether.
    assert "cleared by a restart only" in left or ("no answer" in left and "restart" in left)


def test_what_a_full_push_cannot_clear_is_said_to_need_a_restart(
    live: Live, strange: Callable[..., Vst], vst: Vst, pair: Pair, tmp_path: Path, recovery: Recovery
) -> None:
    """First a publisher that stops inside a fused module, then an update that was left open, on one server.

    vLLM 0.32 keeps what it has of a module whose tensors did not all come, and counts it again in the next update.
    """
    stop_publisher_before(INSIDE, live, strange, pair, tmp_path / "stalled")
    with pytest.raises(PublisherFailed, match="answered 500"):
        recovery.push(live)
    recovery.stop()
    assert paused(live)
    reset, update = Harm("reset", reaches=False), ("POST", "/update_weights")
    with Cut("127.0.0.1", live.port, lambda *call: reset if call == update else None) as proxy:
        open_one = vst("lane=publish", *live.attach(*pair, proxy.url))
    assert open_one.code == 20, open_one.out
    assert open_one.verdict["server"]["state"] == "tainted"
    refused = vst("lane=publish", *live.attach(*pair))
    live.stop()
    assert refused.code == 10, refused.out
    assert "phase start" in refused.check("transfer.completed")["reason"]
    assert not {"/update_weights", "/finish_weight_update", "/resume"} & set(refused.posts())
    assert "restart" in refused.verdict["server"]["left"]
    assert "full push" not in refused.verdict["server"]["left"]
