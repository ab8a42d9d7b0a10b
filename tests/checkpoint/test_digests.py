from __future__ import annotations

import hashlib
import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from vst.checkpoint import digests, hashing, stretches
from vst.checkpoint.digests import DigestCache, tensor_digest, with_digests
from vst.checkpoint.manifest import Manifest, TensorEntry, read_manifest
from vst.checkpoint.stretches import Cutting, Stretch
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError


def checkpoint(directory: Path) -> Manifest:
    contents = {"a": b"1" * 7, "empty": b"", "b": b"2" * 5000, "c": b"3", "last": b""}
    tensors = {name: ("U8", (len(data),), data) for name, data in contents.items()}
    write_safetensors(directory / "m.safetensors", tensors)
    write_safetensors(directory / "n.safetensors", {"d": ("U8", (3,), b"abc")})
    return read_manifest(directory)


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def expected_digests(manifest: Manifest) -> dict[str, str]:
    files = {shard.name: (manifest.path / shard.name).read_bytes() for shard in manifest.shards}
    return {
        entry.name: "blake3:" + blake3(files[entry.shard][entry.offset : entry.offset + entry.nbytes]).hexdigest()
        for entry in manifest.tensors
    }


@pytest.mark.parametrize("shard_digests", [False, True])
@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_tensor_is_digested_across_the_borders_of_pieces_and_shards_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, workers: int, shard_digests: bool
) -> None:
    manifest = checkpoint(tmp_path)
    monkeypatch.setattr(stretches, "PIECE_BYTES", piece)
    found = with_digests(manifest, None, workers, shard_digests=shard_digests)
    assert {entry.name: entry.digest for entry in found.tensors} == expected_digests(manifest)
    for shard in found.shards:
        assert shard.digest == (sha256((tmp_path / shard.name).read_bytes()) if shard_digests else None)


def test_tensor_that_all_threads_share_has_the_digest_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "STRETCH_BYTES", 100_000)
    monkeypatch.setattr(stretches, "PIECE_BYTES", 100_000)
    data = bytes(range(256)) * 4096
    write_safetensors(tmp_path / "m.safetensors", {"big": ("U8", (len(data),), data), "small": ("U8", (1,), b"x")})
    manifest = read_manifest(tmp_path)
    parts = list(stretches.stretches(manifest.tensors, stretches.cutting(len(data), 3)))
    assert [part.threads for part in parts] == [3, 1]
    found = with_digests(manifest, None, 3)
    assert {entry.name: entry.digest for entry in found.tensors} == expected_digests(manifest)


def layout(sizes: list[int]) -> list[TensorEntry]:
    offsets = [8 + sum(sizes[:index]) for index in range(len(sizes))]
    return [TensorEntry(f"t{n}", "U8", (size,), size, "m", offsets[n]) for n, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 60), st.integers(1, 80), st.randoms())
def test_stretches_hold_every_tensor_once_and_are_only_longer_than_allowed_for_a_tensor_that_is(
    sizes: list[int], longest: int, wide: int, order: random.Random
) -> None:
    tensors = layout(sizes)
    shuffled = order.sample(tensors, len(tensors))
    found = list(stretches.stretches(shuffled, Cutting(longest, wide, threads=4)))
    assert sorted(entry.name for part in found for entry in part.tensors) == sorted(entry.name for entry in tensors)
    for part in found:
        assert part.nbytes == sum(entry.nbytes for entry in part.tensors)
        assert part.nbytes <= longest or sum(1 for entry in part.tensors if entry.nbytes) == 1
        assert part.threads == (4 if len(part.tensors) == 1 and part.nbytes > wide else 1)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=12), st.integers(1, 30), st.integers(1, 50))
def test_digests_are_those_of_the_bytes_however_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], piece: int, longest: int
) -> None:
    directory = tmp_path_factory.mktemp("cut")
    tensors = {f"t{n:02}": ("U8", (len(data),), data) for n, data in enumerate(contents)}
    write_safetensors(directory / "m.safetensors", tensors)
    manifest = read_manifest(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "PIECE_BYTES", piece)
        patch.setattr(stretches, "STRETCH_BYTES", longest)
        found = [with_digests(manifest, None, 2, shard_digests=both) for both in (False, True)]
    for one in found:
        assert {entry.name: entry.digest for entry in one.tensors} == expected_digests(manifest)


@pytest.mark.parametrize("shard_digests", [False, True])
def test_progress_adds_up_to_the_files(tmp_path: Path, shard_digests: bool) -> None:
    seen: list[int] = []
    manifest = with_digests(checkpoint(tmp_path), None, progress=seen.append, shard_digests=shard_digests)
    assert sum(seen) == sum(shard.nbytes for shard in manifest.shards)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each positioned read from now on."""
    reads: list[int] = []
    original = hashing.read_at

    def counted(fd: int, buffer: memoryview, offset: int) -> int:
        reads.append(len(buffer))
        return original(fd, buffer, offset)

    monkeypatch.setattr(hashing, "read_at", counted)
    return reads


def test_each_byte_is_read_once_also_where_both_digests_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = checkpoint(tmp_path)
    reads = count_reads(monkeypatch)
    with_digests(manifest, None)
    assert sum(reads) == manifest.total_bytes
    reads.clear()
    with_digests(manifest, None, shard_digests=True)
    assert sum(reads) == sum(shard.nbytes for shard in manifest.shards)


def test_no_sha256_is_computed_where_only_the_content_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []

    class Counted:
        def update(self, data: memoryview) -> None:
            hashed.append(len(data))

        def hexdigest(self) -> str:
            return "0" * 64

    manifest = checkpoint(tmp_path)
    monkeypatch.setattr(hashing, "hashlib", SimpleNamespace(sha256=Counted))
    with_digests(manifest, None)
    assert not hashed
    with_digests(manifest, None, shard_digests=True)
    assert sum(hashed) == sum(shard.nbytes for shard in manifest.shards)


@pytest.mark.parametrize("shard_digests", [False, True])
def test_cached_digests_are_used_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_digests: bool
) -> None:
    manifest = checkpoint(tmp_path)
    cache = DigestCache(tmp_path / "cache", settle_seconds=0)
    expected = with_digests(manifest, cache, shard_digests=shard_digests)
    monkeypatch.setattr(digests, "digest_stretch", lambda *_: pytest.fail("the shard was read again"))
    seen: list[int] = []
    assert with_digests(manifest, cache, progress=seen.append, shard_digests=shard_digests) == expected
    assert sum(seen) == sum(shard.nbytes for shard in manifest.shards)


def test_cached_content_serves_both_requests_only_if_both_were_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = checkpoint(tmp_path)
    cache = DigestCache(tmp_path / "cache", settle_seconds=0)
    content = with_digests(manifest, cache)
    both = with_digests(manifest, cache, shard_digests=True)
    assert [shard.digest for shard in both.shards] == [
        sha256((tmp_path / shard.name).read_bytes()) for shard in both.shards
    ]
    monkeypatch.setattr(digests, "digest_stretch", lambda *_: pytest.fail("the shard was read again"))
    assert with_digests(manifest, cache) == content
    assert with_digests(manifest, cache, shard_digests=True) == both


def test_entry_of_the_cache_before_blake3_is_not_used(tmp_path: Path) -> None:
    manifest = checkpoint(tmp_path)
    cache = DigestCache(tmp_path / "cache", settle_seconds=0)
    expected = with_digests(manifest, cache)
    for path in (tmp_path / "cache").iterdir():
        content = json.loads(path.read_text())
        del content["check"]
        content["key"]["format"] = "vst-digests/1"
        content["tensors"] = {name: "sha256:" + "0" * 64 for name in content["tensors"]}
        content["check"] = sha256(json.dumps(content, sort_keys=True).encode())
        path.write_text(json.dumps(content))
    assert with_digests(manifest, cache) == expected


def test_changed_shard_is_digested_again(tmp_path: Path) -> None:
    manifest = checkpoint(tmp_path)
    cache = DigestCache(tmp_path / "cache", settle_seconds=0)
    before = with_digests(manifest, cache)
    path = tmp_path / "n.safetensors"
    times = path.stat()
    time.sleep(0.02)
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = with_digests(manifest, cache)
    assert after.by_name["d"].digest == tensor_digest(b"xyz") != before.by_name["d"].digest


@pytest.mark.parametrize("damage", ["", "{}", "[1]", "\0", None])
def test_corrupt_cache_entries_are_ignored_and_rewritten(tmp_path: Path, damage: str | None) -> None:
    manifest = checkpoint(tmp_path)
    cache = DigestCache(tmp_path / "cache", settle_seconds=0)
    expected = with_digests(manifest, cache)
    entries = sorted((tmp_path / "cache").iterdir())
    good = [path.read_text() for path in entries]
    for path, text in zip(entries, good, strict=True):
        content = json.loads(text)
        content["shard"] = "sha256:" + "0" * 64
        path.write_text(json.dumps(content) if damage is None else damage)
    assert with_digests(manifest, cache) == expected
    assert [path.read_text() for path in entries] == good


def test_fresh_files_are_not_remembered(tmp_path: Path) -> None:
    with_digests(checkpoint(tmp_path), DigestCache(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def test_full_cache_directory_is_reported_and_not_fatal(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    cache = DigestCache(tmp_path / "cache", settle_seconds=0)
    assert with_digests(checkpoint(tmp_path), cache).content_digest
    assert len(cache.problems) == 2


def test_shard_that_shrank_since_the_manifest_is_refused(tmp_path: Path) -> None:
    manifest = checkpoint(tmp_path)
    os.truncate(tmp_path / "m.safetensors", 20)
    with pytest.raises(VerificationError, match=r"m\.safetensors: 20 bytes"):
        with_digests(manifest, None)


def test_shard_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = checkpoint(tmp_path)
    original = digests.digest_stretch

    def slow(fd: int, path: Path, *rest: Any) -> object:
        found = original(fd, path, *rest)
        os.utime(path, ns=(1, 1))
        return found

    monkeypatch.setattr(digests, "digest_stretch", slow)
    with pytest.raises(VerificationError, match="changed while it was read"):
        with_digests(manifest, None)


def test_shard_that_changes_between_two_of_its_stretches_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = checkpoint(tmp_path)
    monkeypatch.setattr(stretches, "STRETCH_BYTES", 1)
    original = digests._digest

    def changed_after_the_first(shard: Any, stretch: Stretch, *rest: Any) -> object:
        found = original(shard, stretch, *rest)
        if stretch.tensors[0].name == "a":
            os.utime(shard.path, ns=(1, 1))
        return found

    monkeypatch.setattr(digests, "_digest", changed_after_the_first)
    with pytest.raises(VerificationError, match=r"m\.safetensors: changed while it was read"):
        with_digests(manifest, None, workers=1)


def test_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    whole = stretches.whole_shard(9, [])
    with open(path, "rb") as stream, pytest.raises(VerificationError, match="ended at byte 5, expected 9"):
        hashing.digest_stretch(stream.fileno(), path, whole, hashing.Buffers(), lambda _: None)


def test_one_flipped_byte_changes_only_its_tensor(tmp_path: Path) -> None:
    manifest = checkpoint(tmp_path)
    before = with_digests(manifest, None)
    entry = manifest.by_name["b"]
    with open(tmp_path / entry.shard, "r+b") as stream:
        stream.seek(entry.offset + 4000)
        stream.write(b"x")
    after = with_digests(manifest, None)
    changed = [old.name for old, new in zip(before.tensors, after.tensors, strict=True) if old != new]
    assert changed == ["b"] and after.content_digest != before.content_digest
    assert replace(after, tensors=before.tensors).content_digest == before.content_digest


def test_tensor_digest_is_blake3_as_published() -> None:
    # From the test vectors of BLAKE3's reference implementation: no bytes, and the bytes 0, 1, 2.
    assert tensor_digest(b"") == "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert tensor_digest(b"\0\1\2") == "blake3:e1be4d7a8ab5560aa4199eea339849ba8e293d55ca0a81006726d184519e647f"
