from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch

from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.checkpoint.reader import TensorReader
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError
from vst.transfer import pipeline as module
from vst.transfer.frames import largest_frame, plan_frames
from vst.transfer.parts import mixed
from vst.transfer.pipeline import Pipeline, pieces
from vst.transfer.ring import Ring
from vst.transfer.stages import Stopwatch
from vst.transfer.wire import LEAST_FRAME, aligned, cut, frame_limit

MIB = 1 << 20


def checkpoint(directory: Path, sizes: dict[str, list[int]]) -> Manifest:
    """Shards with tensors of so many random bytes; names are in canonical order across shards."""
    number = 0
    for shard, lengths in sizes.items():
        tensors = {}
        for length in lengths:
            tensors[f"t{number:04d}"] = ("U8", (length,), os.urandom(length))
            number += 1
        write_safetensors(directory / shard, tensors)
    index = {name: shard for shard in sizes for name in read_names(directory / shard)}
    (directory / "model.safetensors.index.json").write_text(_index(index))
    return with_digests(read_manifest(directory), None)


def read_names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        return list(file.keys())


def _index(weight_map: dict[str, str]) -> str:
    import json

    return json.dumps({"metadata": {}, "weight_map": weight_map})


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Odd sizes, empty tensors, two shards, and two tensors of several frames each."""
    sizes = {
        "model-1.safetensors": [3, 0, 64, 129, 2 * LEAST_FRAME + 77, 1, 4096],
        "model-2.safetensors": [0, 5 * MIB, LEAST_FRAME, 7, 0, 1000, 65],
    }
    return checkpoint(tmp_path_factory.mktemp("shards"), sizes)


def run(manifest: Manifest, bucket_bytes: int, slots: int) -> tuple[dict[str, bytes], list[str], Stopwatch]:
    """What a receiver would put together from the frames, the digests, and the times."""
    parts = mixed(manifest, None, ())
    _, largest = largest_frame([entry.nbytes for _, entry in parts], bucket_bytes)
    watch, got, digests = Stopwatch(), {entry.name: b"" for _, entry in parts}, []
    for filled in Pipeline(parts, bucket_bytes, Ring(slots, largest), watch):
        whole = filled.data.numpy().tobytes()
        assert len(whole) == filled.frame.nbytes
        for span in filled.frame.spans:
            got[parts[span.index][1].name] += whole[span.offset : span.offset + span.nbytes]
        for entry, digest in filled.digests:
            assert digest == entry.digest
            digests.append(entry.name)
    return got, digests, watch


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("bucket_bytes", [1, 1000, MIB, LEAST_FRAME, 1 << 26])
def test_every_byte_comes_once_in_order_with_the_digest_of_the_manifest(
    manifest: Manifest, bucket_bytes: int, slots: int
) -> None:
    got, digests, watch = run(manifest, bucket_bytes, slots)
    names = [entry.name for entry in manifest.tensors]
    assert digests == names
    with TensorReader(manifest) as reader:
        for entry in manifest.tensors:
            expected = bytearray(entry.nbytes)
            reader.read_into(entry, memoryview(expected))
            assert got[entry.name] == expected, entry.name
    stages = {one["stage"]: one for one in watch.to_json()}
    assert stages["read"]["bytes"] == stages["hash"]["bytes"] == manifest.total_bytes
    assert stages["read"]["busy_s"] > 0 and stages["hash"]["first_s"] <= stages["hash"]["last_s"]


def test_a_slot_is_not_written_while_its_frame_is_being_sent(manifest: Manifest) -> None:
    parts = mixed(manifest, None, ())
    for filled in Pipeline(parts, 1000, Ring(3, frame_limit(1000)), Stopwatch()):
        before = hashlib.sha256(filled.data.numpy()).digest()
        # Were the slot free already, a reader would have had the time to come by.
        torch.ones(200_000).sum()
        assert hashlib.sha256(filled.data.numpy()).digest() == before


def test_neighbours_in_a_file_are_one_read(tmp_path: Path) -> None:
    one = checkpoint(tmp_path, {"model.safetensors": [100] * 50})
    parts = mixed(one, None, ())
    frame = next(plan_frames([entry.nbytes for _, entry in parts], MIB))
    assert [len(piece.spans) for piece in pieces(frame, parts)] == [50]


def test_a_jump_in_the_file_another_shard_and_a_full_piece_end_a_read(manifest: Manifest) -> None:
    parts = mixed(manifest, None, ())
    sizes = [entry.nbytes for _, entry in parts]
    for frame in plan_frames(sizes, 1 << 26):
        for piece in pieces(frame, parts):
            assert sum(span.nbytes for span in piece.spans) <= module.PIECE_BYTES
            entries = [parts[span.index][1] for span in piece.spans]
            assert len({entry.shard for entry in entries}) == 1
            places = [entry.offset + span.start for entry, span in zip(entries, piece.spans, strict=True)]
            ends = [place + span.nbytes for place, span in zip(places, piece.spans, strict=True)]
            assert places[1:] == ends[:-1]


def test_a_shard_that_became_shorter_is_named_and_nothing_after_it_comes(tmp_path: Path) -> None:
    one = checkpoint(tmp_path, {"model.safetensors": [100, 5 * MIB, 100]})
    os.truncate(tmp_path / "model.safetensors", 3 * MIB)
    seen = []
    with pytest.raises(VerificationError, match="model.safetensors: tensor 't0001' ended early"):
        for filled in Pipeline(mixed(one, None, ()), 100, Ring(2, frame_limit(100)), Stopwatch()):
            seen += [entry.name for entry, _ in filled.digests]
    assert seen == ["t0000"]


def test_a_consumer_that_stops_leaves_no_thread_behind(manifest: Manifest) -> None:
    import threading

    frames = iter(Pipeline(mixed(manifest, None, ()), 1000, Ring(4, frame_limit(1000)), Stopwatch()))
    next(frames)
    frames.close()  # type: ignore[attr-defined]
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("read")]:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("bucket_bytes", [1, 100, LEAST_FRAME, LEAST_FRAME + 1, 1 << 30])
def test_frames_bring_the_buckets_of_the_wire_byte_for_byte(bucket_bytes: int) -> None:
    sizes = [0, 5, 3 * LEAST_FRAME + 1, 64, 0, LEAST_FRAME, LEAST_FRAME + 63]
    frames = list(plan_frames(sizes, bucket_bytes))
    assert sum(frame.nbytes for frame in frames) == sum(bucket.nbytes for bucket in cut(sizes, bucket_bytes))
    assert all(frame.nbytes <= frame_limit(bucket_bytes) for frame in frames)
    ends = [span.index for frame in frames for span in frame.spans if span.start + span.nbytes == sizes[span.index]]
    assert ends == list(range(len(sizes)))
    assert sum(span.nbytes for frame in frames for span in frame.spans) == sum(sizes)
    count, largest = largest_frame(sizes, bucket_bytes)
    sent = [frame.nbytes for frame in frames if frame.nbytes]
    assert (count, largest) == (len(sent), max(sent))


def test_a_frame_is_aligned_so_that_the_next_begins_where_a_tensor_may() -> None:
    assert frame_limit(LEAST_FRAME + 1) == aligned(LEAST_FRAME + 1) and frame_limit(1) == LEAST_FRAME
