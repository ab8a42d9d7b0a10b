from __future__ import annotations

from pathlib import Path

import pytest

from transfer.test_pipeline import checkpoint
from vst.checkpoint.manifest import Manifest
from vst.transfer import outgoing
from vst.transfer.footprint import STAGE_BYTES
from vst.transfer.frames import largest_frame
from vst.transfer.ledger import torch_digest
from vst.transfer.outgoing import Memory, Outgoing
from vst.transfer.parts import mixed
from vst.transfer.pipeline import Pipeline
from vst.transfer.plan import JoinPlan, Member, PushPlan
from vst.transfer.ring import Ring
from vst.transfer.stages import Stopwatch
from vst.transfer.staging import staged
from vst.transfer.wire import LEAST_FRAME

MEMBERS = (Member("http://a", 1),)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    sizes = {"model.safetensors": [0, 3, 2 * LEAST_FRAME + 77, 1, LEAST_FRAME + 64, 0, 900, 5]}
    return checkpoint(tmp_path_factory.mktemp("staged"), sizes)


def test_tensors_of_one_and_of_several_frames_come_whole_and_keep_their_bytes(manifest: Manifest) -> None:
    parts = mixed(manifest, None, ())
    _, largest = largest_frame([entry.nbytes for _, entry in parts], 1000)
    watch = Stopwatch()
    frames = iter(Pipeline(parts, 1000, Ring(2, largest), watch))
    # All are kept until the end: a packing engine does the same until its buffer is full.
    got = list(staged(frames, parts, "cpu", watch))
    assert [(name, tuple(tensor.shape), torch_digest(tensor)) for name, tensor in got] == [
        (entry.name, entry.shape, entry.digest) for entry in manifest.tensors
    ]
    assert {one["stage"]: one["bytes"] for one in watch.to_json()}["stage"] == manifest.total_bytes


@pytest.mark.parametrize("staging", ["tensor", "pipelined"])
def test_both_ways_of_staging_send_and_record_the_same(
    manifest: Manifest, staging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "STAGE_BYTES", 1000)
    monkeypatch.setattr("vst.transfer.footprint.STAGE_BYTES", 1000)
    where = JoinPlan("l", MEMBERS, None, "nccl", "127.0.0.1", 0, None, "cpu", 1.0, 1.0, staging=staging)
    told: list[tuple[int, int]] = []
    plan, parts = PushPlan("m", None), mixed(manifest, None, ())
    out = Outgoing(plan, where, parts, manifest, Memory(), lambda *bytes_: told.append(bytes_))
    assert [name for name, _ in out.pairs()] == [entry.name for entry in manifest.tensors]
    sent = out.close()
    assert (sent.content_digest, sent.bytes) == (manifest.content_digest, manifest.total_bytes)
    assert told[-1] == (manifest.total_bytes, manifest.total_bytes)
    assert {one["stage"] for one in sent.stages} >= {"read", "broadcast"}
    assert sent.memory["sender"] > 0
    assert (sent.memory["slots"] > 1) == (staging == "pipelined")


def test_the_slots_of_the_staging_ring_are_smaller_than_vllms_buffers() -> None:
    assert STAGE_BYTES < 1 << 30


def test_the_ring_is_kept_for_the_next_push_and_made_anew_for_a_larger_one(manifest: Manifest) -> None:
    memory = Memory()
    where = JoinPlan("l", MEMBERS, None, "vst_gloo", "127.0.0.1", 0, 1000, "cpu", 1.0, 1.0)
    small = JoinPlan("l", MEMBERS, None, "vst_gloo", "127.0.0.1", 0, 1000, "cpu", 1.0, 1.0, ring=2)
    places = []
    for one in (where, where, small):
        out = Outgoing(PushPlan("m", None), one, mixed(manifest, None, ()), manifest, memory, lambda *_: None)
        places.append((next(out.frames(1000)).data.data_ptr(), memory.bytes))
    assert places[0] == places[1]
    assert places[2][1] < places[0][1]


def test_a_push_without_room_is_refused_before_a_server_is_told_anything(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Outgoing, "_available", lambda self: 1000)
    where = JoinPlan("l", MEMBERS, None, "vst_gloo", "127.0.0.1", 0, 1000, "cpu", 1.0, 1.0)
    with pytest.raises(outgoing.VerificationError, match="1000 are available"):
        Outgoing(PushPlan("m", None), where, mixed(manifest, None, ()), manifest, Memory(), lambda *_: None)
