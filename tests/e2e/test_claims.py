"""Claims that are not true: another checkpoint than was sent, a server that was never updated, a restarted one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Live, Run, Vst, forked
from e2e.proxy import Call, Proxy
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.writer import write_safetensors
from vst.oracle.reference import read_reference

TRANSFER = {
    "/init_weight_transfer_engine",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
}


@pytest.fixture(scope="module")
def other(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint C: B with the final norm of A, whole and valid, and neither of the two."""
    a, b = pair
    c = tmp_path_factory.mktemp("c") / "c"
    shutil.copytree(b, c)
    manifest = read_manifest(b)
    norm = manifest.by_name["model.norm.weight"]
    shard = c / norm.shard
    parts: dict[str, Any] = {}
    raw = shard.read_bytes()
    for entry in manifest.tensors:
        if entry.shard == norm.shard:
            parts[entry.name] = (entry.dtype, entry.shape, raw[entry.offset : entry.offset + entry.nbytes])
    source = read_manifest(a).by_name["model.norm.weight"]
    data = (a / source.shard).read_bytes()[source.offset : source.offset + source.nbytes]
    parts["model.norm.weight"] = (norm.dtype, norm.shape, data)
    write_safetensors(shard, parts, {"format": "pt"})
    return c


@pytest.fixture(scope="module")
def reference_of_other(other: Path, vst: Vst, warm: tuple[str, ...]) -> Path:
    run = vst("lane=record", "model=local", "model.name=tiny", f"model.path='{other}'", *forked(warm))
    assert run.code == 0, run.out
    return run.dir / "reference.json"


@pytest.fixture(scope="module")
def second(pair: tuple[Path, Path], warm: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A second real server, started on B."""
    live = Live(pair[1], tmp_path_factory.mktemp("second") / "server.log", warm)
    live.start()
    yield live
    live.stop()


def test_a_reference_of_another_checkpoint_than_b_is_refused_before_anything_is_pushed(
    ladder: Run, live: Live, vst: Vst, pair: tuple[Path, Path], reference_of_other: Path
) -> None:
    run = vst("lane=L3", *live.attach(*pair), f"oracle.reference='{reference_of_other}'")
    assert run.code == 11, run.out
    assert "is of a checkpoint with the content" in run.check("reference.comparable")["reason"]


def test_a_server_that_was_updated_gives_no_reference(
    ladder: Run, live: Live, vst: Vst, pair: tuple[Path, Path]
) -> None:
    run = vst("lane=record", *live.attach(*pair))
    assert run.code == 11, run.out
    assert "start the server anew" in run.check("reference.cold")["reason"]
    assert not (run.dir / "reference.json").exists()


def test_sending_b_while_claiming_another_checkpoint_fails(
    ladder: Run, live: Live, vst: Vst, pair: tuple[Path, Path], reference_of_other: Path, tmp_path: Path
) -> None:
    """The reference says that it is of B, and is of another checkpoint."""
    content = str(with_digests(read_manifest(pair[1]), None).content_digest)
    lying = tmp_path / "reference.json"
    lying.write_text(json.dumps(replace(read_reference(reference_of_other), content_digest=content).to_json()))
    run = vst("lane=L3", *live.attach(*pair), f"oracle.reference='{lying}'")
    assert run.code == 10, run.out
    assert run.check("transition.to_b")["outcome"] == "fail"
    assert run.verdict["server"]["state"] == "tainted"
    assert run.posts()[-1] == "/pause"


def test_bytes_that_change_after_the_audit_stop_the_push_before_the_finish(
    live: Live, vst: Vst, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "a"
    shutil.copytree(pair[0], copy)
    shard = sorted(copy.glob("*.safetensors"))[0]

    def swap(call: Call) -> None:
        if (call.method, call.path) == ("POST", "/init_weight_transfer_engine"):
            data = bytearray(shard.read_bytes())
            data[-1] ^= 1
            shard.write_bytes(data)

    with Proxy(live.url, before=swap) as proxy:
        run = vst("lane=L2", *live.attach(copy, pair[1], proxy.url))
    assert run.code == 10, run.out
    check = run.check("transfer.completed")
    assert "are not those of the manifest" in check["reason"]
    assert "/finish_weight_update" not in run.posts()
    assert "/resume" not in run.posts()
    assert run.check("files.stable")["outcome"] == "fail"


def test_a_server_that_was_never_updated_fails_as_no_effect(
    ladder: Run, live: Live, second: Live, vst: Vst, pair: tuple[Path, Path]
) -> None:
    """A balancer that sends the update to one replica and the questions to another."""

    def split(call: Call) -> None:
        if call.path in TRANSFER:
            call.backend = second.url
        return None

    with Proxy(live.url, before=split) as proxy:
        run = vst("lane=L3", *live.attach(*pair, proxy.url))
    assert run.code == 10, run.out
    assert "no effect" in run.check("transition.to_b")["reason"]
    assert run.verdict["server"]["state"] == "tainted"


def test_a_server_restarted_behind_our_back_fails_even_on_the_right_weights(
    ladder: Run, live: Live, second: Live, vst: Vst, pair: tuple[Path, Path]
) -> None:
    """After the first transaction of L3 another process answers, and it was started on B."""
    done: list[str] = []

    def swap(call: Call) -> None:
        if len([path for path in done if path == "POST /finish_weight_update"]) >= 3:
            call.backend = second.url
        return None

    def count(call: Call, status: int, body: Any) -> tuple[int, Any]:
        done.append(f"{call.method} {call.path}")
        return status, body

    with Proxy(live.url, before=swap, after=count) as proxy:
        run = vst("lane=L3", *live.attach(*pair, proxy.url))
    assert run.code in (10, 20), run.out
    assert run.verdict["verdict"] == "FAIL_CLOSED"
    assert run.check("server.same")["outcome"] == "fail"
    assert "restarted behind our back" in run.check("server.same")["reason"]


def test_two_runs_cannot_push_into_one_server_at_once(live: Live, vst: Vst, pair: tuple[Path, Path]) -> None:
    slow = ["transfer.rate_limit_bytes_per_s=200000", "lane=L2"]
    first, out = vst.start(*slow, *live.attach(*pair))
    try:
        while not (out / "events.jsonl").exists() or "publisher_progress" not in (out / "events.jsonl").read_text():
            assert first.poll() is None, first.communicate()[0]
        run = vst("lane=L2", *live.attach(*pair, live.url.replace("127.0.0.1", "localhost")))
    finally:
        text, _ = first.communicate(timeout=120)
    assert run.code == 11, run.out
    assert str(first.pid) in run.check("server.reachable")["reason"]
    assert run.verdict["server"]["state"] == "unknown"
    assert first.returncode == 0, text
    assert json.loads((out / "verdict.json").read_text())["verdict"] == "PASS"
