from __future__ import annotations

import struct
from pathlib import Path

import pytest

from vst.checkpoint import finite
from vst.checkpoint.finite import not_finite
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.writer import write_safetensors

NAN, INF = float("nan"), float("inf")


def scan(directory: Path, dtype: str, data: bytes, shape: tuple[int, ...]) -> list[str]:
    write_safetensors(directory / "m.safetensors", {"x": (dtype, shape, data)})
    return not_finite(read_manifest(directory))


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("F64", struct.pack("<d", -1.7e308), [struct.pack("<d", value) for value in (NAN, INF, -INF)]),
        ("F32", struct.pack("<f", 3.4e38), [struct.pack("<f", value) for value in (NAN, INF, -INF)]),
        ("F16", struct.pack("<e", 65504), [struct.pack("<e", value) for value in (NAN, INF, -INF)]),
        ("BF16", b"\x7f\x7f", [b"\x80\x7f", b"\x80\xff", b"\x81\x7f", b"\xff\xff"]),
        ("F8_E5M2", b"\x7b", [b"\x7c", b"\xfc", b"\x7f", b"\xfd"]),
        ("F8_E4M3", b"\x7e", [b"\x7f", b"\xff"]),
        ("F8_E8M0", b"\xfe", [b"\xff"]),
        ("F8_E4M3FNUZ", b"\xff", [b"\x80"]),
        ("F8_E5M2FNUZ", b"\x7f", [b"\x80"]),
    ],
)
def test_every_pattern_of_nan_and_infinity_is_found(tmp_path: Path, dtype: str, good: bytes, bad: list[bytes]) -> None:
    assert scan(tmp_path, dtype, good * 12, (3, 4)) == []
    for value in bad:
        messages = scan(tmp_path, dtype, good * 7 + value + good * 4, (3, 4))
        assert len(messages) == 1 and "'x'" in messages[0] and "first at index [1, 3]" in messages[0]


def test_both_parts_of_a_complex_number_are_looked_at(tmp_path: Path) -> None:
    assert "[1]" in scan(tmp_path, "C64", struct.pack("<4f", 0, 0, 0, NAN), (2,))[0]


def test_integers_and_empty_tensors_are_never_refused(tmp_path: Path) -> None:
    assert scan(tmp_path, "I32", b"\xff" * 16, (4,)) == []
    assert scan(tmp_path, "BF16", b"", (0, 4)) == []


def test_index_is_right_beyond_the_first_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite, "CHUNK_BYTES", 16)
    assert "[101]" in scan(tmp_path, "BF16", b"\0\0" * 101 + b"\x80\x7f" * 2, (103,))[0]


def test_scalar_has_an_empty_index(tmp_path: Path) -> None:
    assert "first at index []" in scan(tmp_path, "F32", struct.pack("<f", NAN), ())[0]
