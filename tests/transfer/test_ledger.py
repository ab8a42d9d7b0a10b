from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from blake3 import blake3

from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, TensorEntry, read_manifest
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError
from vst.transfer.ledger import Ledger, torch_digest
from vst.transfer.parts import mixed, read

Pairs = list[tuple[str, torch.Tensor]]

TENSORS = {
    "a.bool": ("BOOL", (3,), b"\x01\x00\x01"),
    "b.empty": ("F32", (0, 4), b""),
    "c.scalar": ("I64", (), (7).to_bytes(8, "little")),
    "d.half": ("BF16", (2, 2), bytes(range(8))),
    "e.half": ("BF16", (2, 2), bytes(range(8, 16))),
}


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    write_safetensors(tmp_path / "model.safetensors", TENSORS)
    return with_digests(read_manifest(tmp_path), None)


def stream(manifest: Manifest) -> Pairs:
    return list(read(mixed(manifest, None, ())))


def pass_through(manifest: Manifest, pairs: Pairs, entries: tuple[TensorEntry, ...] | None = None) -> Ledger:
    ledger = Ledger(entries or manifest.tensors, manifest.layout_digest)
    list(ledger.watch(iter(pairs)))
    return ledger


def test_an_honest_stream_is_recorded_with_the_content_digest_of_the_manifest(manifest: Manifest) -> None:
    sent = pass_through(manifest, stream(manifest)).close()
    assert sent.content_digest == manifest.content_digest
    assert sent.layout_digest == manifest.layout_digest
    assert (sent.tensors, sent.bytes) == (5, manifest.total_bytes)


def test_the_digest_is_of_what_passed_and_not_of_what_was_planned(manifest: Manifest) -> None:
    undigested = tuple(replace(entry, digest=None) for entry in manifest.tensors)
    pairs = stream(manifest)
    pairs[3] = (pairs[3][0], pairs[3][1] + 1)
    sent = pass_through(manifest, pairs, undigested).close()
    assert sent.content_digest != manifest.content_digest
    assert pass_through(manifest, stream(manifest), undigested).close().content_digest == manifest.content_digest


def swap(pairs: Pairs) -> Pairs:
    return [*pairs[:3], pairs[4], pairs[3]]


def retype(pairs: Pairs) -> Pairs:
    return [*pairs[:3], (pairs[3][0], pairs[3][1].view(torch.float16)), pairs[4]]


def reshape(pairs: Pairs) -> Pairs:
    return [*pairs[:3], (pairs[3][0], pairs[3][1].reshape(4)), pairs[4]]


def change(pairs: Pairs) -> Pairs:
    return [*pairs[:3], (pairs[3][0], pairs[4][1]), pairs[4]]


def rename(pairs: Pairs) -> Pairs:
    return [*pairs[:3], ("d.other", pairs[3][1]), pairs[4]]


WRONG: dict[str, tuple[Callable[[Pairs], Pairs], str]] = {
    "omits one in the middle": (lambda pairs: pairs[:3] + pairs[4:], "e.half"),
    "omits the last": (lambda pairs: pairs[:4], "before e.half"),
    "sends nothing": (lambda pairs: [], "before a.bool"),
    "repeats one": (lambda pairs: [*pairs[:4], pairs[3], pairs[4]], "at position 4, expected e.half"),
    "repeats the last": (lambda pairs: [*pairs, pairs[4]], "after the last of 5"),
    "starts again": (lambda pairs: pairs + pairs, "after the last of 5"),
    "re-orders": (swap, "at position 3, expected d.half"),
    "re-types": (retype, "expected d.half BF16"),
    "re-shapes": (reshape, r"expected d.half BF16 \[2, 2\]"),
    "renames": (rename, "expected d.half"),
    "changes bytes": (change, "the bytes read for d.half are not those of the manifest"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_stream_that_is_not_the_planned_one_has_no_record_and_the_tensor_is_named(
    manifest: Manifest, what: str
) -> None:
    spoil, message = WRONG[what]
    with pytest.raises(VerificationError, match=message):
        pass_through(manifest, spoil(stream(manifest))).close()


def test_nothing_passes_after_the_first_wrong_tensor(manifest: Manifest) -> None:
    passed: list[str] = []
    watch: Iterator[tuple[str, torch.Tensor]] = Ledger(manifest.tensors, "").watch(iter(swap(stream(manifest))))
    with pytest.raises(VerificationError):
        passed.extend(name for name, _ in watch)
    for name, _ in watch:
        passed.append(name)
    assert passed == ["a.bool", "b.empty", "c.scalar"]


def test_a_control_is_checked_against_the_bytes_of_the_checkpoint_that_each_tensor_comes_from(
    manifest: Manifest, tmp_path: Path
) -> None:
    other_dir = tmp_path / "other"
    other_dir.mkdir()
    changed = {name: ("BF16", (2, 2), b"\xaa" * 8) for name in ("d.half", "e.half")}
    write_safetensors(other_dir / "model.safetensors", {**TENSORS, **changed})
    other = with_digests(read_manifest(other_dir), None)
    parts = mixed(manifest, other, ("d.half",))
    assert [source is other for source, _ in parts] == [False, False, False, True, False]
    ledger = Ledger([entry for _, entry in parts], manifest.layout_digest)
    got = {name: torch_digest(tensor) for name, tensor in ledger.watch(read(parts))}
    assert got["d.half"] == other.by_name["d.half"].digest != manifest.by_name["d.half"].digest
    assert ledger.close().content_digest not in (manifest.content_digest, other.content_digest)


@pytest.mark.parametrize("tensor", [torch.tensor(5, dtype=torch.int16), torch.zeros(0), torch.arange(6).view(2, 3)])
def test_a_tensors_digest_is_that_of_its_bytes(tensor: torch.Tensor) -> None:
    data = bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
    assert torch_digest(tensor) == "blake3:" + blake3(data).hexdigest()
