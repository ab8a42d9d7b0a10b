from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vst.checkpoint.header import DTYPE_BITS, HeaderError, read_header
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError

FILES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, table: Any, data: bytes = b"", raw: bytes | None = None) -> Path:
    text = raw if raw is not None else json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refusal(path: Path) -> str:
    with pytest.raises(HeaderError) as error:
        read_header(path)
    assert str(path) in str(error.value)
    return str(error.value)


def test_header_gives_absolute_offsets_in_file_order(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"b": ("BF16", (2, 3), b"1" * 12), "a": ("F32", (), b"1234")}, {"format": "pt"})
    header = read_header(path)
    assert [(item.name, item.dtype, item.shape, item.nbytes) for item in header.tensors] == [
        ("b", "BF16", (2, 3), 12),
        ("a", "F32", (), 4),
    ]
    assert path.read_bytes()[header.tensors[1].offset :] == b"1234"
    assert header.metadata == {"format": "pt"} and header.file_bytes == path.stat().st_size


def test_safetensors_reads_what_the_writer_wrote(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": ("F32", (1, 2), b"\0" * 8), "é": ("I64", (1,), b"\1" * 8)})
    with safetensors.safe_open(path, "numpy") as file:
        assert sorted(file.keys()) == ["a", "é"]
        assert file.get_tensor("a").shape == (1, 2)


def test_every_dtype_of_whole_bytes_is_read(tmp_path: Path) -> None:
    for dtype, bits in DTYPE_BITS.items():
        path = write(tmp_path / f"{dtype}.safetensors", {"x": entry(dtype, [8], [0, bits])}, b"\0" * bits)
        assert read_header(path).tensors[0].nbytes == bits


def test_empty_tensors_share_an_offset_with_their_neighbour(tmp_path: Path) -> None:
    table = {"z": entry(shape=[0], offsets=[4, 4]), "y": entry(), "x": entry(shape=[0, 9], offsets=[0, 0])}
    assert len(read_header(write(tmp_path / "x", table, b"abcd")).tensors) == 3


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"x": entry(offsets=[1, 5])}, "a hole"),
        ({"x": entry(), "y": entry(offsets=[3, 7])}, "an overlap"),
        ({"x": entry(), "y": entry(offsets=[0, 4])}, "an overlap"),
        ({"x": entry("Q4")}, "unknown dtype"),
        ({"x": entry(dtype=["U8"])}, "unknown dtype"),
        ({"x": entry(shape=[-4])}, "shape"),
        ({"x": entry(shape=[True, 4])}, "shape"),
        ({"x": entry(shape=[4.0])}, "shape"),
        ({"x": entry(shape=[2**63, 0], offsets=[0, 0])}, "shape"),
        ({"x": entry(shape=[1] * 65)}, "at most 64"),
        ({"x": entry(shape=[2**62] * 60)}, "needs"),
        ({"x": entry(shape=4)}, "shape"),
        ({"x": entry(offsets=[4, 0])}, "data_offsets"),
        ({"x": entry(offsets=[0, True])}, "data_offsets"),
        ({"x": entry(offsets=[0, 4, 4])}, "data_offsets"),
        ({"x": entry("F4", [3], [0, 2])}, "no whole bytes"),
        ({"x": entry("F16")}, "needs 8"),
        ({"x": {**entry(), "more": 1}}, "expected dtype, shape"),
        ({"x": None}, "expected dtype, shape"),
        ({"__metadata__": {"a": 1}, "x": entry()}, "__metadata__"),
        ({"__metadata__": None, "x": entry()}, "__metadata__"),
        ({"x\ud800": entry()}, "not valid Unicode"),
        ({"x": entry(shape=[3], offsets=[0, 3])}, "belong to no tensor"),
        ([], "expected b'{'"),
    ],
)
def test_malformed_headers_are_refused_with_the_reason(tmp_path: Path, table: Any, expected: str) -> None:
    assert expected in refusal(write(tmp_path / "x.safetensors", table, b"abcd"))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"x":' * 200_000, "nested too deeply"),
        (b'{"x":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}', "digits"),
        (b'{"x":NaN}', "NaN"),
        (b'{"x":\xff}', "not UTF-8"),
        (b'{"x":1,"x":1}', "duplicate key 'x'"),
        (b'{"x":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}', "duplicate key 'dtype'"),
        (b' {"x":1}', "begins with b' '"),
        (b"", "begins with b''"),
        (b"{", "Expecting"),
    ],
)
def test_hostile_json_is_refused(tmp_path: Path, raw: bytes, expected: str) -> None:
    assert expected in refusal(write(tmp_path / "x.safetensors", None, b"abcd", raw))


def test_messages_stay_short_however_long_the_names_are(tmp_path: Path) -> None:
    assert len(refusal(write(tmp_path / "x", {"n" * 1_000_000: entry("F16")}, b"abcd"))) < 2000


def test_k2_file_shorter_than_its_header_says_is_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "x.safetensors", {"x": entry()}, b"abc")
    assert f"truncated: {path.stat().st_size} bytes, header needs {path.stat().st_size + 1}" in refusal(path)


@pytest.mark.parametrize("kept", [0, 7, 8, 20])
def test_file_cut_inside_its_header_is_truncated(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "x.safetensors", {"x": entry()}, b"abcd")
    os.truncate(path, kept)
    assert f"truncated: {kept} bytes" in refusal(path)


def test_header_length_beyond_the_limit_is_refused_without_reading(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", 2**40))
        stream.truncate(2**41)
    assert "at most" in refusal(path)


def test_only_regular_files_are_opened_and_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "regular file" in refusal(tmp_path / "fifo")
    assert "regular file" in refusal(tmp_path)
    assert "regular file" in refusal(Path("/dev/zero"))
    assert "No such file" in refusal(tmp_path / "absent")


def read_or_refuse(path: Path) -> None:
    size = path.stat().st_size
    try:
        header = read_header(path)
    except VerificationError as error:
        assert isinstance(error, HeaderError) and str(path) in str(error)
        return
    assert all(item.offset + item.nbytes <= size for item in header.tensors)
    assert header.header_bytes + sum(item.nbytes for item in header.tensors) == size


@FILES
@given(content=st.binary(max_size=300))
def test_arbitrary_bytes_never_crash_the_reader(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    read_or_refuse(tmp_path / "x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(sorted(DTYPE_BITS)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NEARLY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(sorted(DTYPE_BITS)) | JSON,
        "shape": st.lists(st.integers(-1, 5), max_size=3) | JSON,
        "data_offsets": st.tuples(st.integers(-1, 40), st.integers(0, 40)) | JSON,
    }
)


@FILES
@given(
    table=st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), NEARLY | JSON, max_size=4), data=st.binary()
)
def test_mutated_headers_never_crash_the_reader(tmp_path: Path, table: dict[str, Any], data: bytes) -> None:
    read_or_refuse(write(tmp_path / "x", table, data))


@FILES
@given(position=st.integers(0, 150), byte=st.integers(0, 255), cut=st.integers(0, 160))
def test_flipped_and_cut_bytes_never_crash_the_reader(tmp_path: Path, position: int, byte: int, cut: int) -> None:
    path = write(tmp_path / "x", {"a": entry(), "b": entry("BF16", [2, 2], [4, 12])}, b"0" * 12)
    content = bytearray(path.read_bytes())
    content[position % len(content)] = byte
    path.write_bytes(content[:cut] if cut % 2 else content)
    read_or_refuse(path)
