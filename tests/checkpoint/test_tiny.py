from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
import tokenizers

from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.tiny import make_tiny_pair, tree_digest, write_tiny
from vst.checkpoint.writer import write_atomically, write_safetensors
from vst.errors import VerificationError

LAYOUT = "sha256:52ea1a61e788e0acc4df88cf718ee825410d1a3b0899a3990fcda3dc271a937b"
CONTENT = (
    "blake3:65af12b6e2d13110ccfe8bcfa09e39ecd420dec800e67a1d776b28dd6f4ec77b",
    "blake3:11c41ad535cd08a8e4167ee8b514ed21793ea8150a3326429e3aca95e885ee5c",
)


def test_pair_has_the_same_bytes_on_every_machine(pristine: tuple[Path, Path]) -> None:
    manifests = [with_digests(read_manifest(path), None) for path in pristine]
    assert [manifest.layout_digest for manifest in manifests] == [LAYOUT, LAYOUT]
    assert tuple(manifest.content_digest for manifest in manifests) == CONTENT


def test_every_tensor_differs_and_both_stay_small(pristine: tuple[Path, Path]) -> None:
    a, b = (with_digests(read_manifest(path), None) for path in pristine)
    assert all(first.digest != second.digest for first, second in zip(a.tensors, b.tensors, strict=True))
    assert len(a.shards) == 3 and sum(path.stat().st_size for path in pristine[0].iterdir()) < 2_000_000


def test_weights_have_the_declared_spread(pristine: tuple[Path, Path]) -> None:
    import numpy as np

    for entry in read_manifest(pristine[0]).tensors:
        raw = np.fromfile(pristine[0] / entry.shard, "<u2", entry.nbytes // 2, offset=entry.offset)
        values = (raw.astype("<u4") << 16).view("<f4")
        is_norm = len(entry.shape) == 1
        assert abs(float(values.mean()) - is_norm) < 0.03
        assert 0.1 < float(values.std()) < 0.17
        assert np.isfinite(values).all()


def test_complete_pair_is_reused_and_a_damaged_one_is_rebuilt(tmp_path: Path) -> None:
    a, b = make_tiny_pair(tmp_path)
    inodes = (a.stat().st_ino, b.stat().st_ino)
    make_tiny_pair(tmp_path)
    assert (a.stat().st_ino, b.stat().st_ino) == inodes
    os.truncate(b / "config.json", 10)
    (a / "model-00001-of-00003.safetensors").unlink()
    make_tiny_pair(tmp_path)
    assert with_digests(read_manifest(a), None).content_digest == CONTENT[0]
    assert json.loads((b / "config.json").read_text())["vocab_size"] == 320
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a", "b"]


def test_concurrent_callers_all_get_a_complete_pair(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map_async(make_tiny_pair, [tmp_path] * 8).get(timeout=60)
    assert set(found) == {(tmp_path / "a", tmp_path / "b")}
    assert with_digests(read_manifest(tmp_path / "b"), None).content_digest == CONTENT[1]


def test_other_seeds_give_other_bytes_of_the_same_layout(tmp_path: Path) -> None:
    write_tiny(tmp_path / "c", "another seed")
    manifest = with_digests(read_manifest(tmp_path / "c"), None)
    assert manifest.layout_digest == LAYOUT and manifest.content_digest not in CONTENT


def test_tree_digest_sees_names_and_contents(pristine: tuple[Path, Path], tmp_path: Path) -> None:
    copy = shutil.copytree(pristine[0], tmp_path / "copy")
    assert tree_digest(copy) == tree_digest(pristine[0])
    (copy / "config.json").rename(copy / "config2.json")
    assert tree_digest(copy) != tree_digest(pristine[0])


def test_tokenizer_covers_every_byte_and_round_trips(pristine: tuple[Path, Path]) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(pristine[0] / "tokenizer.json"))
    text = "Hello, wörld! 你\n\t<|end|>"
    encoded = tokenizer.encode(text)
    assert encoded.ids[:5] == list(b"Hello") and encoded.ids[-1] == 257
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text
    assert tokenizer.get_vocab_size() == 259


def test_writer_refuses_bytes_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="needs 4"):
        write_safetensors(tmp_path / "x", {"a": ("BF16", (2,), b"123")})
    with pytest.raises(VerificationError, match="no whole bytes"):
        write_safetensors(tmp_path / "x", {"a": ("F4", (3,), b"12")})
    with pytest.raises(VerificationError, match="unknown dtype"):
        write_safetensors(tmp_path / "x", {"a": ("Q4", (3,), b"12")})
    assert list(tmp_path.iterdir()) == []


def test_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        write_atomically(path, [b"new", 3])  # type: ignore[list-item]
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
