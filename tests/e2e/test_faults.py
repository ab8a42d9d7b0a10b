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
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.aftermath import TOTAL, comes_back, left_not_serving, paused, wait_for
from e2e.conftest import Live, Recovery, Run, Vst
from e2e.cut import Cut, Harm
from e2e.proxy import Call, Proxy
from vst.provenance.verify import verify

Pair = tuple[Path, Path]
HOST = str(Path(__file__).parent / "strange_host")
SLOWLY = ["transfer.rate_limit_bytes_per_s=600000", "transfer.bucket_bytes=65536"]
"""A push that takes 1.5 s."""
SHORT = ["transfer.timeouts.start_s=3", "transfer.timeouts.broadcast_s=2", "transfer.timeouts.finish_s=5"]


@pytest.fixture
def home(live: Live, recovery: Recovery, ladder: Run) -> Callable[[], None]:
    """Leads the shared server back and shows that it answers as a cold one."""
    return lambda: comes_back(live, recovery, ladder)


@pytest.fixture
def strange(vst: Vst, tmp_path: Path) -> Callable[..., Vst]:
    return lambda **env: replace(vst, extra={"PYTHONPATH": HOST, **env}, runs=tmp_path)


def given_up_after(run: Run) -> float:
    """Seconds of the monotonic clock from the beginning of the broadcast to the moment when the server was given up."""
    begun = next(event["monotonic"] for event in run.events("publisher_phase") if event["phase"] == "broadcast")
    tainted = next(event["monotonic"] for event in run.events("server_state") if event["after"] == "tainted")
    return float(tainted - begun)


def test_stopped_publisher_is_given_up_at_its_deadline_though_the_wall_clock_steps_back(
    live: Live, strange: Callable[..., Vst], pair: Pair, home: Callable[[], None]
) -> None:
    vst = strange(VST_TEST_CLOCK="-86400@4")
    process, out = vst.start("lane=L2", *SLOWLY, *SHORT, *live.attach(*pair))
    pid = wait_for(out / "events.jsonl", "publisher_start", lambda event: True, process)["pid"]
    wait_for(out / "events.jsonl", "publisher_progress", lambda event: event["bytes"] > TOTAL / 5, process)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    text, _ = process.communicate(timeout=60)
    run = Run(process.returncode, text, out, time.monotonic() - stopped)
    assert run.code == 10, text
    left_not_serving(run, live)
    reason = run.check("transfer.completed")["reason"]
    assert "phase broadcast" in reason and "before its deadline" in reason
    assert 5 <= given_up_after(run) < 20
    assert not psutil.pid_exists(pid)
    home()


def test_starved_publisher_that_goes_on_too_slowly_is_given_up_at_its_deadline(
    live: Live, strange: Callable[..., Vst], pair: Pair, home: Callable[[], None]
) -> None:
    """Each read of a tensor takes half a second: bytes keep coming, and never enough of them."""
    run = strange(VST_TEST_READ_S="0.5")("lane=L2", *SHORT, "transfer.bucket_bytes=65536", *live.attach(*pair))
    assert run.code == 10, run.out
    left_not_serving(run, live)
    reason = run.check("transfer.completed")["reason"]
    assert "phase broadcast" in reason and "before its deadline" in reason
    assert run.events("publisher_progress"), "it was not seen to go on"
    assert 2 <= given_up_after(run) < 15
    home()


def test_slow_control_plane_and_a_wall_clock_that_jumps_are_no_faults(
    live: Live, strange: Callable[..., Vst], pair: Pair
) -> None:
    with Cut("127.0.0.1", live.port, lambda method, path: Harm("delay", seconds=0.1)) as proxy:
        run = strange(VST_TEST_CLOCK="86400@4")("lane=L2", *live.attach(*pair, proxy.url))
    assert run.code == 0, run.out
    events = [json.loads(line) for line in (run.dir / "events.jsonl").read_text().splitlines()]
    assert len({event["utc"][:10] for event in events}) == 2, "the clock was not seen to jump"
    assert [event["monotonic"] for event in events] == sorted(event["monotonic"] for event in events)
    assert all(event["seconds"] < 30 for event in events if event["kind"] == "http")
    assert verify(run.dir).findings == []


CUTS: dict[str, tuple[str, Harm, str, int, tuple[str, ...]]] = {
    "start swallowed": ("/start_weight_update", Harm("drop", reaches=False), "phase start", 10, ()),
    "update reset": ("/update_weights", Harm("reset"), "phase broadcast", 20, ()),
    "finish cut short": ("/finish_weight_update", Harm("truncate", keep=150), "phase finish", 20, ("finish",)),
    "resume reset": ("/resume", Harm("reset"), "/resume", 20, ("finish", "resume")),
}
"""Where the control plane is cut, how, what the reason names, the exit code, and what had been sent by then."""


@pytest.mark.parametrize("name", CUTS)
def test_control_plane_that_is_cut_leaves_the_server_paused_and_tainted(
    name: str, live: Live, vst: Vst, pair: Pair, home: Callable[[], None]
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
    home()


def test_disk_that_fills_up_in_the_middle_of_a_push_leaves_the_server_paused_and_what_was_written_readable(
    live: Live, vst: Vst, pair: Pair, tmp_path: Path, home: Callable[[], None]
) -> None:
    """The run directory is a small file system of its own, which the test fills when the update begins."""
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    process: list[subprocess.Popen[str]] = []

    def fill(call: Call) -> None:
        if (call.method, call.path) == ("POST", "/update_weights"):
            # The file system is in the namespace of the run.
            inside = Path(f"/proc/{process[0].pid}/root{disk}/filler")
            with inside.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
                while True:
                    file.write(b"x" * 512)

    with Proxy(live.url, before=fill) as proxy:
        argv = [sys.executable, "-m", "vst", f"paths.cache='{vst.cache}'", f"hydra.run.dir='{disk / 'run'}'"]
        line = shlex.join([*argv, "lane=L2", *SLOWLY, *live.attach(*pair, proxy.url)])
        script = (
            f"mount -t tmpfs -o size=4m tmpfs {disk} || exit 99; {line}; code=$?; cp -a {disk}/run {kept}; exit $code"
        )
        own = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        process.append(
            subprocess.Popen(
                ["unshare", *own, "--mount", "sh", "-c", script],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
            )
        )  # fmt: skip
        text, _ = process[0].communicate(timeout=120)
    assert process[0].returncode == 20, text
    assert "No space left on device" in text and "free space" in text
    assert "Traceback" not in text
    assert "/update_weights" in proxy.seen
    assert not {"/finish_weight_update", "/resume"} & set(proxy.seen)
    assert paused(live)
    report = verify(kept)
    assert report.findings == [] and report.incomplete is not None, report.lines()
    home()


@pytest.fixture
def broken(live: Live) -> Iterator[Live]:
    """The shared server for a fault that only a restart clears; it is stopped afterwards, so that it is restarted."""
    yield live
    live.stop()


def test_worker_that_is_killed_in_a_push_ends_the_run_and_the_server_is_said_to_be_gone(
    broken: Live, vst: Vst, pair: Pair
) -> None:
    process, out = vst.start("lane=L2", *SLOWLY, *SHORT, *broken.attach(*pair))
    wait_for(out / "events.jsonl", "publisher_progress", lambda event: event["bytes"] > TOTAL / 5, process)
    assert broken.process is not None
    engine = [p for p in psutil.Process(broken.process.pid).children(recursive=True) if "VLLM::" in p.name()]
    assert engine, "no process of vLLM's engine was found"
    engine[-1].kill()
    killed = time.monotonic()
    text, _ = process.communicate(timeout=90)
    run = Run(process.returncode, text, out, time.monotonic() - killed)
    assert run.code in (10, 20), text
    assert run.verdict["verdict"] == "FAIL_CLOSED"
    assert run.verdict["server"]["state"] in ("tainted", "dead")
    assert not {"/finish_weight_update", "/resume"} & set(run.posts())
    assert run.seconds < 60
    assert "restart" in text
    again = vst("lane=L2", *broken.attach(*pair))
    assert again.code in (11, 20), again.out


def test_update_that_was_left_open_refuses_every_later_one_and_a_restart_is_said_to_be_needed(
    broken: Live, vst: Vst, pair: Pair
) -> None:
    """The publisher dies between start and update: the server keeps the update open, and only a restart helps."""
    pids: list[int] = []

    def kill(call: Call) -> tuple[int, Any] | None:
        if (call.method, call.path) == ("POST", "/update_weights"):
            os.kill(pids[0], signal.SIGKILL)
            return 500, {"error": "never reached the server"}
        return None

    with Proxy(broken.url, before=kill) as proxy:
        process, out = vst.start("lane=L2", *SLOWLY, *broken.attach(*pair, proxy.url))
        pids.append(wait_for(out / "events.jsonl", "publisher_start", lambda event: True, process)["pid"])
        text, _ = process.communicate(timeout=60)
    run = Run(process.returncode, text, out, 0.0)
    assert run.code == 20, text
    left_not_serving(run, broken)
    assert "restart" in text
    again = vst("lane=publish", *broken.attach(*pair))
    assert again.code == 10, again.out
    assert again.check("transfer.completed")["outcome"] == "fail"
    assert "restart" in again.out
    assert "/finish_weight_update" not in again.posts()
