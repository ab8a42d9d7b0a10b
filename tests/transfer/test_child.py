from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
from http_server import Call, Reply

from transfer.conftest import Pair
from transfer.workers import WorkerServer
from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.errors import VerificationError, VstError
from vst.server.client import HttpFailure, Unreachable
from vst.transfer import child, outgoing
from vst.transfer import parts as reading
from vst.transfer.ledger import torch_digest
from vst.transfer.plan import JoinPlan, Member, PushPlan
from vst.transfer.publisher import Deadlines, Publisher, PublisherFailed

Part = tuple[Manifest, TensorEntry]
Parts = list[Part]
TRANSACTION = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
KEY = "sk-very-secret-0123"


@dataclass
class Real:
    """A real publisher process and what it reported."""

    publisher: Publisher
    events: list[dict[str, Any]]
    log: Path


DEADLINES = Deadlines(boot_s=60, join_s=20, start_s=20, broadcast_s=20, finish_s=20, min_bytes_per_s=1e6)


@pytest.fixture(scope="module", autouse=True)
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A real publisher, started before it is needed: most of its start is the import of vLLM."""
    events: list[dict[str, Any]] = []
    log = tmp_path_factory.mktemp("publisher") / "publisher.log"
    started = Real(Publisher(DEADLINES, log, events.append), events, log)
    started.publisher.start({**os.environ, "VLLM_TARGET_DEVICE": "cpu", "KEY_OF_TEST": KEY})
    yield started
    started.publisher.stop()


@pytest.fixture
def server() -> Iterator[WorkerServer]:
    one = WorkerServer()
    yield one
    one.close()


def join_plan(server: WorkerServer, layout: str, **changes: Any) -> JoinPlan:
    given: dict[str, Any] = {
        "layout": layout,
        "members": (Member(server.url, 1),),
        "api_key_env": None,
        "backend": "vst_gloo",
        "master_address": "127.0.0.1",
        "port": 0,
        "bucket_bytes": 65536,
        "device": "cpu",
        "timeout_s": 15.0,
        "http_timeout_s": 15.0,
    }
    return JoinPlan(**{**given, **changes})


def arrived(server: WorkerServer) -> dict[str, str]:
    return {name: torch_digest(tensor) for name, tensor in server.worker.model.tensors.items()}


def digests(manifest: Manifest) -> dict[str, str | None]:
    return {entry.name: entry.digest for entry in manifest.tensors}


class GivesUpByRaising(child.Reports):
    """Reports whose last act is to raise, so that the test's own process lives on."""

    def give_up(self, error: BaseException) -> NoReturn:
        raise error


@dataclass
class Here:
    """A publisher's session inside the test's process, with the real engine and a real HTTP server."""

    session: child.Session
    out: io.StringIO

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@pytest.fixture
def here(server: WorkerServer, pair: Pair) -> Here:
    out = io.StringIO()
    session = child.Session(GivesUpByRaising(out))
    session.join(join_plan(server, pair.files["a"], timeout_s=12.0, http_timeout_s=14.0))
    server.calls.clear()
    return Here(session, out)


def retyped(part: Part) -> Part:
    return part[0], replace(part[1], dtype="F16")


def other_bytes(part: Part) -> Part:
    return part[0], replace(part[1], offset=part[1].offset + 2)


SPOILED: dict[str, Callable[[Parts], Parts]] = {
    "omits one": lambda parts: parts[:5] + parts[6:],
    "omits the last": lambda parts: parts[:-1],
    "repeats one": lambda parts: [*parts[:6], parts[5], *parts[6:]],
    "goes on after the last": lambda parts: [*parts, parts[-1]],
    "re-orders": lambda parts: [*parts[:5], parts[6], parts[5], *parts[7:]],
    "re-types": lambda parts: [*parts[:5], retyped(parts[5]), *parts[6:]],
    "changes bytes": lambda parts: [*parts[:5], other_bytes(parts[5]), *parts[6:]],
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_finish_is_never_sent_for_a_stream_that_was_not_whole(
    here: Here, server: WorkerServer, pair: Pair, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """K19."""
    honest = outgoing.Pipeline

    def spoiled(parts: Parts, *rest: Any) -> outgoing.Pipeline:
        return honest(SPOILED[what](list(parts)), *rest)

    monkeypatch.setattr(outgoing, "Pipeline", spoiled)
    with pytest.raises((VerificationError, ValueError)):
        here.session.push(PushPlan(pair.files["b"], "label"))
    assert server.paths() == TRANSACTION[:2]
    assert "done" not in [event["event"] for event in here.events()]


@pytest.mark.parametrize("what", SPOILED)
def test_vllms_own_senders_are_not_given_a_finish_either(
    here: Here, pair: Pair, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """K19, the stream of tensors that the NCCL engine takes."""
    honest = reading.read
    monkeypatch.setattr(reading, "read", lambda parts: honest(SPOILED[what](parts)))
    session = here.session
    session._plan = PushPlan(pair.files["b"], "label")
    session._outgoing = session._prepare(session._plan)
    with pytest.raises((VerificationError, ValueError)):
        list(session._stream())
        session.complete()


def test_a_sender_that_asks_for_the_finish_without_having_sent_is_not_given_it(
    here: Here, server: WorkerServer
) -> None:
    client = here.session._engine.client
    with pytest.raises(VerificationError, match="before anything was sent"):
        client.finish_weight_update()
    assert server.paths() == []


def test_a_sender_that_returns_without_a_finish_is_no_success(
    here: Here, server: WorkerServer, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here.session._engine, "send_weights", lambda: None)
    with pytest.raises(VerificationError, match="nothing was finished"):
        here.session.push(PushPlan(pair.files["b"], "label"))
    assert server.paths() == []


def test_a_control_sends_the_named_tensors_from_the_other_checkpoint(
    here: Here, server: WorkerServer, pair: Pair
) -> None:
    kept = ("lm_head.weight", "model.norm.weight")
    here.session.push(PushPlan(pair.files["b"], "control", pair.files["a"], kept))
    a, b = digests(pair.manifests["a"]), digests(pair.manifests["b"])
    assert arrived(server) == {name: a[name] if name in kept else b[name] for name in b}
    assert here.events()[-1]["content_digest"] != pair.manifests["b"].content_digest


def test_a_partial_push_sends_the_named_tensors_alone_and_leaves_the_others(
    here: Here, server: WorkerServer, pair: Pair
) -> None:
    only = ("lm_head.weight", "model.norm.weight")
    here.session.push(PushPlan(pair.files["a"], "whole"))
    here.session.push(PushPlan(pair.files["b"], "part", only=only))
    a, b = digests(pair.manifests["a"]), digests(pair.manifests["b"])
    assert arrived(server) == {name: b[name] if name in only else a[name] for name in a}
    assert [event["tensors"] for event in here.events() if event["event"] == "done"] == [len(a), 2]
    here.session.push(PushPlan(pair.files["b"], "whole again"))
    assert arrived(server) == b


def test_a_partial_push_of_a_tensor_that_is_not_there_sends_nothing(
    here: Here, server: WorkerServer, pair: Pair
) -> None:
    with pytest.raises(VerificationError, match="has no tensor nobody"):
        here.session.push(PushPlan(pair.files["b"], "part", only=("lm_head.weight", "nobody")))
    assert server.paths() == []


def test_the_reports_of_a_push_name_phases_calls_and_bytes(here: Here, pair: Pair) -> None:
    here.session.push(PushPlan(pair.files["b"], "label"))
    events = here.events()
    assert [event["phase"] for event in events if event["event"] == "phase"] == ["join", "start", "broadcast", "finish"]
    assert [event["path"] for event in events if event["event"] == "http"] == [
        "/init_weight_transfer_engine",
        *TRANSACTION,
    ]
    last = [event for event in events if event["event"] == "progress"][-1]
    assert last["bytes"] == last["total"] == pair.manifests["b"].total_bytes
    assert events[-1]["event"] == "done"


def test_a_push_can_be_slowed_down(here: Here, pair: Pair) -> None:
    total, begun = pair.manifests["b"].total_bytes, time.monotonic()
    here.session.push(PushPlan(pair.files["b"], "label", rate_limit=2.0 * total))
    assert 0.45 < time.monotonic() - begun < 3


def test_a_checkpoint_of_another_layout_is_not_pushed_into_the_session(
    here: Here, server: WorkerServer, pair: Pair, tmp_path: Path
) -> None:
    content = json.loads(Path(pair.files["b"]).read_text())
    smaller = Manifest.from_json(content)
    smaller = type(smaller)(smaller.path, smaller.tensors[1:], smaller.shards, smaller.files)
    (tmp_path / "other.json").write_text(json.dumps(smaller.to_json()))
    with pytest.raises(VerificationError, match="another layout"):
        here.session.push(PushPlan(str(tmp_path / "other.json"), "label"))
    assert "/finish_weight_update" not in server.paths()


def test_a_draft_of_another_layout_has_a_transaction_of_its_own_over_the_same_group(
    here: Here, server: WorkerServer, pair: Pair, tmp_path: Path
) -> None:
    whole = pair.manifests["b"]
    small = type(whole)(whole.path, whole.tensors[:7], whole.shards, whole.files)
    (tmp_path / "draft.json").write_text(json.dumps(small.to_json()))
    server.routes["POST /start_draft_weight_update"] = {"message": "started"}
    for _ in range(2):
        server.calls.clear()
        here.session.push(PushPlan(pair.files["b"], "of the model"))
        here.session.push(PushPlan(str(tmp_path / "draft.json"), "of the model", draft=True))
        assert server.paths() == [*TRANSACTION, "/start_draft_weight_update", *TRANSACTION[1:]]
        finishes = [call.body for call in server.calls if call.path == "/finish_weight_update"]
        assert finishes == [{"weight_version": "of the model"}] * 2
        sent = [event for event in here.events() if event["event"] == "done"][-2:]
        assert [one["tensors"] for one in sent] == [len(whole.tensors), 7]
        assert arrived(server) == digests(whole)


def test_a_server_that_refuses_the_drafts_transaction_gets_no_tensor_of_it(
    here: Here, server: WorkerServer, pair: Pair
) -> None:
    server.routes["POST /start_draft_weight_update"] = Reply(500, {"error": "no draft model is configured"})
    with pytest.raises(HttpFailure, match="no draft model"):
        here.session.push(PushPlan(pair.files["b"], "label", draft=True))
    assert server.paths() == ["/start_draft_weight_update"]


def test_a_finish_that_fails_is_no_success(here: Here, server: WorkerServer, pair: Pair) -> None:
    server.routes["POST /finish_weight_update"] = {"success": False}
    with pytest.raises(VstError, match="success is false"):
        here.session.push(PushPlan(pair.files["b"], "label"))
    assert "done" not in [event["event"] for event in here.events()]


def test_an_update_that_is_answered_with_500_is_never_finished(here: Here, server: WorkerServer, pair: Pair) -> None:
    """K16."""
    server.routes["POST /update_weights"] = Reply(500, {"error": {"message": "shape mismatch"}})
    with pytest.raises(HttpFailure, match="answered 500.*shape mismatch"):
        here.session.push(PushPlan(pair.files["b"], "label"))
    assert server.paths() == TRANSACTION[:2]


def test_an_update_that_is_never_answered_ends_at_the_deadline_and_is_never_finished(
    server: WorkerServer, pair: Pair
) -> None:
    """K17, the publisher's side: its parent's deadline is in ``test_publisher``."""
    released = threading.Event()

    def receive_and_keep_silent(call: Call) -> Any:
        server.update(call)
        released.wait(20)
        return {}

    server.routes["POST /update_weights"] = receive_and_keep_silent
    session = child.Session(GivesUpByRaising(io.StringIO()))
    session.join(join_plan(server, pair.files["a"], http_timeout_s=3.0))
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"POST .*/update_weights: no answer after 3\.\d s"):
        session.push(PushPlan(pair.files["b"], "label"))
    assert time.monotonic() - begun < 6
    assert arrived(server) == digests(pair.manifests["b"])
    assert server.paths() == ["/init_weight_transfer_engine", *TRANSACTION[:2]]
    released.set()


def test_a_start_that_fails_sends_nothing_else(here: Here, server: WorkerServer, pair: Pair) -> None:
    server.routes["POST /start_weight_update"] = Reply(409, {"detail": "an update is open"})
    with pytest.raises(VstError, match="409"):
        here.session.push(PushPlan(pair.files["b"], "label"))
    assert server.paths() == TRANSACTION[:1]


def test_a_push_before_the_join_is_refused() -> None:
    with pytest.raises(VerificationError, match="push before join"):
        child.Session(GivesUpByRaising(io.StringIO())).push(PushPlan("m.json", "label"))


def test_a_join_that_the_server_refuses_is_final(server: WorkerServer, pair: Pair) -> None:
    server.routes["POST /init_weight_transfer_engine"] = Reply(400, {"error": "unknown backend"})
    session = child.Session(GivesUpByRaising(io.StringIO()))
    with pytest.raises(VstError, match="unknown backend"):
        session.join(join_plan(server, pair.files["a"], timeout_s=2.0))


def test_reports_end_the_process_after_the_last_word() -> None:
    script = "import sys; from vst.transfer.child import Reports; from vst.errors import VerificationError\n"
    script += "try: Reports(sys.stdout).give_up(VerificationError('not whole'))\nfinally: print('never')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "event": "failed",
        "kind": "stream",
        "error": "not whole",
        "type": "VerificationError",
    }


def test_a_real_publisher_pushes_twice_and_its_death_in_the_third_reaches_both_ends(
    real: Real, server: WorkerServer, pair: Pair
) -> None:
    publisher, total = real.publisher, pair.manifests["a"].total_bytes
    assert publisher.wait_ready()["vllm"].startswith("0.")
    publisher.join(join_plan(server, pair.files["a"], api_key_env="KEY_OF_TEST"))
    for name in "ab":
        server.calls.clear()
        sent = publisher.push(PushPlan(pair.files[name], f"label-{name}"), total)
        assert sent.content_digest == pair.manifests[name].content_digest
        assert (sent.bytes, sent.tensors) == (total, len(pair.manifests[name].tensors))
        assert arrived(server) == digests(pair.manifests[name])
        assert list(server.worker.model.tensors) == [entry.name for entry in pair.manifests[name].tensors]
        assert server.paths() == TRANSACTION
        assert server.calls[-1].body == {"weight_version": f"label-{name}"}
        assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {KEY}"}
    assert KEY not in json.dumps(real.events) + real.log.read_text()

    pid, heard = publisher.pid, real.events.append
    assert pid is not None

    def kill_midway(event: dict[str, Any]) -> None:
        heard(event)
        if event["event"] == "progress" and 2 * event["bytes"] > total:
            os.kill(pid, 9)

    publisher._tell = kill_midway
    server.calls.clear()
    server.received.clear()
    with pytest.raises(PublisherFailed) as caught:
        publisher.push(PushPlan(pair.files["a"], "label-3", rate_limit=total / 1.0), total)
    assert (caught.value.phase, caught.value.kind, caught.value.changed) == ("broadcast", "died", True)
    assert "signal 9" in str(caught.value) and not psutil.pid_exists(pid)
    assert server.received.wait(10) and server.ended is not None
    assert server.paths() == TRANSACTION[:2]
