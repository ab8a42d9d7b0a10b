from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from vst.checkpoint import digests
from vst.checkpoint.digests import DigestCache, tensor_digest, with_digests
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError


def checkpoint(directory: Path) -> Manifest:
    contents = {"a": b"1" * 7, "empty": b"", "b": b"2" * 5000, "c": b"3", "last": b""}
    tensors = {name: ("U8", (len(data),), data) for name, data in contents.items()}
    write_safetensors(directory / "m.safetensors", tensors)
    write_safetensors(directory / "n.safetensors", {"d": ("U8", (3,), b"abc")})
    return read_manifest(directory)


def test_every_tensor_and_shard_is_digested_across_chunk_borders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = checkpoint(tmp_path)
    for chunk in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(digests, "CHUNK_BYTES", chunk)
        found = with_digests(manifest, None)
        for shard in found.shards:
            data = (tmp_path / shard.name).read_bytes()
            assert shard.digest == tensor_digest(data)
            for entry in (item for item in found.tensors if item.shard == shard.name):
                assert entry.digest == tensor_digest(data[entry.offset : entry.offset + entry.nbytes])


def test_progress_adds_up_to_the_files(tmp_path: Path) -> None:
    seen: list[int] = []
    manifest = with_digests(checkpoint(tmp_path), None, progress=seen.append)
    assert sum(seen) == sum(shard.nbytes for shard in manifest.shards)


def test_cached_digests_are_used_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = checkpoint(tmp_path)
    cache = DigestCache(tmp_path / "cache", settle_seconds=0)
    expected = with_digests(manifest, cache)
    monkeypatch.setattr(digests, "digest_spans", lambda *_: pytest.fail("the shard was read again"))
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
    original = digests.digest_spans

    def slow(fd: int, path: Path, *rest: object) -> object:
        found = original(fd, path, *rest)  # type: ignore[arg-type]
        os.utime(path, ns=(1, 1))
        return found

    monkeypatch.setattr(digests, "digest_spans", slow)
    with pytest.raises(VerificationError, match="changed while it was read"):
        with_digests(manifest, None)


def test_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    with open(path, "rb") as stream, pytest.raises(VerificationError, match="ended at byte 5, expected 9"):
        digests.digest_spans(stream.fileno(), path, 9, [], lambda _: None)


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


def test_tensor_digest_is_sha256() -> None:
    assert tensor_digest(memoryview(b"abc")) == "sha256:" + hashlib.sha256(b"abc").hexdigest()
