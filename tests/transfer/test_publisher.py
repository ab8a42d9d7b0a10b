from __future__ import annotations

import json
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from vst.transfer.plan import JoinPlan, Member, PushPlan, Sent
from vst.transfer.publisher import Deadlines, Publisher, PublisherFailed

SPEAK = """
import json, os, signal, sys, time
def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)
def hear():
    return json.loads(sys.stdin.readline())
def done(**fields):
    sent = dict(tensors=3, bytes=100, layout_digest="sha256:1", content_digest="blake3:2", seconds=0.1)
    say("done", **{**sent, **fields})
"""
READY = SPEAK + 'say("ready", vllm="0.32.0", torch="2.13.0")\n'
JOINED = READY + 'hear(); say("phase", phase="join"); say("joined"); hear()\n'

HERE = Member("http://127.0.0.1:1", 1)
JOIN = JoinPlan("layout.json", (HERE,), None, "vst_gloo", "127.0.0.1", 0, 64, "cpu", 5.0, 5.0)
PUSH = PushPlan("manifest.json", "label-1")
QUICK = Deadlines(boot_s=20, join_s=5, start_s=5, broadcast_s=5, finish_s=5, min_bytes_per_s=1000)


class Child:
    """A publisher whose process runs a script of the test in place of ``vst.transfer.child``."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self.events: list[dict[str, Any]] = []

    def __call__(self, script: str, deadlines: Deadlines = QUICK) -> Publisher:
        file = self._folder / "python"
        file.write_text(f"#!{sys.executable}\n{script}")
        file.chmod(0o755)
        publisher = Publisher(deadlines, self._folder / "publisher.log", self.events.append)
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(file))
            publisher.start(os.environ)
        return publisher


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    return Child(tmp_path, monkeypatch)


def gone(pid: int | None) -> bool:
    return pid is not None and not psutil.pid_exists(pid)


def failure(publisher: Publisher, act: Callable[[], object]) -> PublisherFailed:
    """The failure of ``act``; whatever it was, no process of the publisher may be left, not even a zombie."""
    pid = publisher.pid
    with pytest.raises(PublisherFailed) as caught:
        act()
    assert gone(pid) and not publisher.alive and publisher.pid is None
    return caught.value


def all_phases(publisher: Publisher, nbytes: int = 100) -> Sent:
    publisher.join(JOIN)
    return publisher.push(PUSH, nbytes)


def test_a_publisher_that_does_as_told_gives_versions_and_what_was_sent(child: Child) -> None:
    script = """
assert hear() == {"do": "join", "plan": json.loads(%r)}
say("joined")
command = hear()
assert (command["do"], command["plan"]["label"]) == ("push", "label-1"), command
done()
time.sleep(60)
"""
    publisher = child(READY + script % json.dumps(JOIN.to_json()))
    assert publisher.wait_ready() == {"vllm": "0.32.0", "torch": "2.13.0"}
    assert all_phases(publisher) == Sent(3, 100, "sha256:1", "blake3:2", 0.1)
    assert publisher.alive and not publisher.changed
    pid = publisher.pid
    publisher.stop()
    publisher.stop()
    assert gone(pid)
    assert [event["event"] for event in child.events] == ["ready", "joined", "done"]


HANGS = {
    "boot": SPEAK + "time.sleep(60)",
    "join": READY + 'hear(); say("phase", phase="join"); time.sleep(60)',
    "start": JOINED + "time.sleep(60)",
    "broadcast": JOINED + 'say("phase", phase="start"); say("phase", phase="broadcast"); time.sleep(60)',
    "finish": JOINED + 'say("phase", phase="broadcast"); say("phase", phase="finish"); time.sleep(60)',
}


@pytest.mark.parametrize("phase", HANGS)
def test_each_phase_has_a_deadline_that_ends_the_process_and_is_named(child: Child, phase: str) -> None:
    deadlines = Deadlines(**{**{f"{name}_s": 20.0 for name in HANGS}, f"{phase}_s": 0.4, "min_bytes_per_s": 1e9})
    publisher = child(HANGS[phase], deadlines)
    begun = time.monotonic()
    error = failure(publisher, lambda: all_phases(publisher))
    assert (error.phase, error.kind) == (phase, "deadline")
    assert f"phase {phase}" in str(error) and "deadline" in str(error)
    assert error.changed is (phase != "boot")
    assert time.monotonic() - begun < 5


def test_a_publisher_that_was_ready_in_time_is_ready_however_late_it_is_asked(child: Child) -> None:
    """It boots beside the start of a server, which may take many minutes."""
    publisher = child(READY + "time.sleep(60)", replace(QUICK, boot_s=0.05))
    assert publisher._process is not None
    select.select([publisher._process.stdout], [], [], 60)
    assert publisher.wait_ready()["vllm"] == "0.32.0"
    publisher.stop()


def test_progress_does_not_move_the_deadline(child: Child) -> None:
    script = JOINED + 'say("phase", phase="broadcast")\nwhile True: say("progress", bytes=1, total=9); time.sleep(0.01)'
    publisher = child(script, Deadlines(20, 20, 20, 0.5, 20, 1e9))
    assert failure(publisher, lambda: all_phases(publisher)).kind == "deadline"
    assert any(event["event"] == "progress" for event in child.events)


def test_the_deadline_of_the_broadcast_grows_with_the_bytes_and_no_other_does() -> None:
    limit = Deadlines(1, 2, 3, 4, 5, min_bytes_per_s=1000).limit
    assert [limit(phase, 10_000) for phase in HANGS] == [1, 2, 3, 14, 5]
    assert limit("broadcast", 0) == 4


def test_a_large_push_gets_the_time_that_its_bytes_need(child: Child) -> None:
    script = JOINED + 'say("phase", phase="broadcast"); time.sleep(0.8); done()\n'
    slow = Deadlines(20, 20, 20, 0.3, 20, 1000)
    assert all_phases(child(script, slow), 2000).tensors == 3
    publisher = child(script, slow)
    assert failure(publisher, lambda: all_phases(publisher, 10)).kind == "deadline"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("sys.exit(3)", "exited with 3"),
        ("sys.exit(0)", "exited with 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9"),
        ("os.abort()", "was killed by signal 6"),
        ("raise RuntimeError('boom')", "exited with 1"),
    ],
)
def test_a_publisher_that_ends_says_how_and_where_its_log_is(child: Child, end: str, how: str) -> None:
    publisher = child(JOINED + f'say("phase", phase="broadcast"); {end}')
    error = failure(publisher, lambda: all_phases(publisher))
    assert (error.phase, error.kind, error.changed) == ("broadcast", "died", True)
    assert how in str(error) and "publisher.log" in str(error)


def test_a_publisher_that_was_killed_before_the_push_is_not_told_to_push(child: Child) -> None:
    publisher = child(READY + 'hear(); say("joined"); time.sleep(60)')
    publisher.join(JOIN)
    assert publisher.pid is not None
    os.kill(publisher.pid, 9)
    error = failure(publisher, lambda: publisher.push(PUSH, 1))
    assert error.kind == "died" and "signal 9" in str(error)


def test_a_publisher_that_is_not_there_has_died(child: Child) -> None:
    publisher = child(JOINED)
    publisher.join(JOIN)
    publisher.stop()
    with pytest.raises(PublisherFailed, match="is not running"):
        publisher.push(PUSH, 1)


def test_a_publisher_that_closes_its_pipe_and_lives_on_is_ended(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vst.transfer.publisher.END_S", 0.3)
    publisher = child(JOINED + 'say("phase", phase="finish"); os.close(1); time.sleep(60)')
    error = failure(publisher, lambda: all_phases(publisher))
    assert (error.phase, error.kind, error.changed) == ("finish", "died", True)
    assert "closed its pipe" in str(error)


def test_a_long_plan_to_a_publisher_that_does_not_read_meets_the_deadline(child: Child) -> None:
    publisher = child(READY + 'hear(); say("joined"); time.sleep(60)', Deadlines(20, 20, 0.5, 20, 20, 1e9))
    publisher.join(JOIN)
    plan = PushPlan("manifest.json", "label", "other.json", tuple(f"model.layers.{n}.weight" for n in range(50_000)))
    assert failure(publisher, lambda: publisher.push(plan, 1)).kind == "deadline"


def test_a_long_plan_arrives_whole(child: Child) -> None:
    publisher = child(READY + 'hear(); say("joined"); done(tensors=len(hear()["plan"]["from_other"]))\n')
    publisher.join(JOIN)
    plan = PushPlan("manifest.json", "label", "other.json", tuple(f"model.layers.{n}.weight" for n in range(50_000)))
    assert publisher.push(plan, 1).tensors == 50_000
    publisher.stop()


GARBAGE = [
    b"Traceback (most recent call last):",
    b"",
    b"null",
    b"[]",
    b"3",
    b'"ready"',
    b"{}",
    b'{"event": null}',
    b'{"event": ["done"]}',
    b'{"event": "phase"}',
    b'{"event": "phase", "phase": "party"}',
    b'{"event": "phase", "phase": ["start"]}',
    b'{"event": "done"}',
    b'{"event": "done", "tensors": 1}',
    b'{"event": "failed"}',
    b'{"event": "ready"',
    b"\xff\xfe\x00",
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", GARBAGE, ids=[str(line[:24]) for line in GARBAGE])
def test_a_line_that_is_no_report_ends_the_publisher_and_is_shown(child: Child, line: bytes) -> None:
    publisher = child(JOINED + f'say("phase", phase="broadcast"); os.write(1, {line!r} + b"\\n"); time.sleep(60)')
    error = failure(publisher, lambda: all_phases(publisher))
    assert (error.phase, error.kind, error.changed) == ("broadcast", "garbage", True)
    assert len(str(error)) < 1000


def test_a_report_without_an_end_is_given_up(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vst.transfer.publisher.MAX_REPORT_BYTES", 1 << 16)
    publisher = child(JOINED + 'os.write(1, b"x" * 60_000)\nwhile True: os.write(1, b"x" * 60_000)')
    assert failure(publisher, lambda: all_phases(publisher)).kind == "garbage"


@pytest.mark.parametrize("kind", ["answer", "stream", "unreachable", "transport", "error"])
def test_a_failure_that_the_publisher_reports_keeps_its_kind_and_its_words(child: Child, kind: str) -> None:
    script = f'say("phase", phase="finish"); say("failed", kind={kind!r}, error="it broke"); time.sleep(60)'
    publisher = child(JOINED + script)
    error = failure(publisher, lambda: all_phases(publisher))
    assert (error.kind, error.phase, error.changed) == (kind, "finish", True)
    assert "it broke" in str(error)


@pytest.mark.parametrize(("kind", "changed"), [("answer", False), ("transport", True), ("error", True)])
def test_only_a_join_that_the_server_refused_leaves_no_worker_waiting(child: Child, kind: str, changed: bool) -> None:
    script = f'hear(); say("phase", phase="join"); say("failed", kind={kind!r}, error="no"); time.sleep(60)'
    publisher = child(READY + script)
    error = failure(publisher, lambda: publisher.join(JOIN))
    assert (error.phase, error.changed) == ("join", changed)


def test_where_one_server_refuses_to_join_the_workers_of_the_others_are_left_waiting(child: Child) -> None:
    script = 'hear(); say("phase", phase="join"); say("failed", kind="answer", error="no"); time.sleep(60)'
    publisher = child(READY + script)
    both = replace(JOIN, members=(HERE, Member("http://127.0.0.1:2", 1, "server 2")))
    assert failure(publisher, lambda: publisher.join(both)).changed


def test_a_push_that_was_finished_is_no_change_for_the_failure_that_follows_while_idle(child: Child) -> None:
    publisher = child(JOINED + "done(); sys.exit(0)")
    all_phases(publisher)
    assert not publisher.changed
    assert failure(publisher, lambda: publisher.push(PUSH, 1)).kind == "died"


def test_reports_that_arrive_in_pieces_or_together_are_read_alike(child: Child) -> None:
    script = """
os.write(1, b'{"event": "pha')
time.sleep(0.2)
os.write(1, b'se", "phase": "start"}\\n{"event": "x"}\\n')
done()
"""
    publisher = child(JOINED + script)
    assert all_phases(publisher).tensors == 3
    assert [event["event"] for event in child.events][-3:] == ["phase", "x", "done"]
    publisher.stop()


def test_a_publisher_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    parent = f"""
import os, sys, time
from pathlib import Path
from vst.transfer.publisher import Deadlines, Publisher
publisher = Publisher(Deadlines(20, 5, 5, 5, 5, 1000), Path({str(tmp_path / "log")!r}), lambda event: None)
publisher.start(os.environ)
print(publisher.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        publisher = psutil.Process(int(process.stdout.readline()))
        process.kill()
        process.wait()
    assert psutil.wait_procs([publisher], timeout=10)[1] == []


def test_a_failure_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(PublisherFailed("text", "finish", "answer", True)))
    assert (str(error), error.phase, error.kind, error.changed) == ("text", "finish", "answer", True)
