from __future__ import annotations

import os
from pathlib import Path

import pytest

from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.reader import TensorReader
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError


def checkpoint(directory: Path, shards: int = 5) -> None:
    for number in range(shards):
        data = bytes([number]) * 100
        write_safetensors(directory / f"{number}.safetensors", {f"t{number}": ("U8", (100,), data)})


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_tensors_are_read_in_full_with_few_descriptors(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    manifest = read_manifest(tmp_path)
    before = open_files()
    with TensorReader(manifest, max_open=2) as reader:
        for entry in (*manifest.tensors, *manifest.tensors):
            buffer = bytearray(entry.nbytes)
            reader.read_into(entry, memoryview(buffer))
            assert set(buffer) == {int(entry.name[1])}
            assert open_files() <= before + 2
    assert open_files() == before


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path, 2)
    manifest = read_manifest(tmp_path)
    original = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, parts, offset: original(fd, [parts[0][:7]], offset))
    buffer = bytearray(100)
    with TensorReader(manifest) as reader:
        reader.read_into(manifest.by_name["t1"], memoryview(buffer))
    assert buffer == b"\1" * 100


def test_shard_that_ends_early_names_shard_tensor_and_bytes(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    manifest = read_manifest(tmp_path)
    os.truncate(tmp_path / "0.safetensors", manifest.tensors[0].offset + 60)
    with (
        TensorReader(manifest) as reader,
        pytest.raises(VerificationError, match=r"0\.safetensors.*'t0'.*60 bytes.*expected 100"),
    ):
        reader.read_into(manifest.tensors[0], memoryview(bytearray(100)))


def test_buffer_of_another_size_and_ranges_outside_are_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    manifest = read_manifest(tmp_path)
    with TensorReader(manifest) as reader:
        with pytest.raises(VerificationError, match="the buffer has 99"):
            reader.read_into(manifest.tensors[0], memoryview(bytearray(99)))
        with pytest.raises(VerificationError, match="from byte 90"):
            reader.read_range(manifest.tensors[0], 90, memoryview(bytearray(11)))


def test_buffers_of_wider_elements_and_empty_tensors_are_filled(tmp_path: Path) -> None:
    data = bytes(range(16))
    write_safetensors(tmp_path / "m.safetensors", {"e": ("F32", (0, 3), b""), "x": ("F32", (2, 2), data)})
    manifest = read_manifest(tmp_path)
    buffer = bytearray(16)
    with TensorReader(manifest) as reader:
        reader.read_into(manifest.by_name["e"], memoryview(b""))
        reader.read_into(manifest.by_name["x"], memoryview(buffer).cast("f", [2, 2]))  # type: ignore[arg-type]
    assert buffer == data


def test_vanished_shard_is_refused_by_name(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    manifest = read_manifest(tmp_path)
    (tmp_path / "0.safetensors").unlink()
    with TensorReader(manifest) as reader, pytest.raises(VerificationError, match=r"0\.safetensors"):
        reader.read_into(manifest.tensors[0], memoryview(bytearray(100)))
