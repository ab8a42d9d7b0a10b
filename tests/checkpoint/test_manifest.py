from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from blake3 import blake3

from vst.checkpoint.canonical import combine_content_digest, layout_digest
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, TensorEntry, read_manifest
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError

from .earlier import earlier_manifest

Pristine = tuple[Path, Path]


def entry(name: str, dtype: str = "U8", shape: tuple[int, ...] = (1,), digest: str | None = None) -> TensorEntry:
    return TensorEntry(name, dtype, shape, 1, "x.safetensors", 0, digest)


def test_tensors_are_in_bytewise_order_whatever_the_shards(tmp_path: Path) -> None:
    names = ["z", "a.10", "a.9", "B", "é", "\U0001f600", "\uffff", "a"]
    write_safetensors(tmp_path / "m.safetensors", {name: ("U8", (1,), b"x") for name in names})
    found = [item.name for item in read_manifest(tmp_path).tensors]
    assert found == sorted(names, key=lambda name: name.encode())


def test_layout_digest_is_the_published_format(pristine: Pristine) -> None:
    manifest = read_manifest(pristine[0])
    rows = [[item.name, item.dtype, list(item.shape)] for item in manifest.tensors]
    text = "vst-layout/1\n" + "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    assert manifest.layout_digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_content_digest_is_the_published_format(pristine: Pristine) -> None:
    manifest = with_digests(read_manifest(pristine[0]), None)
    rows = [[item.name, item.dtype, list(item.shape), item.digest] for item in manifest.tensors]
    text = "vst-content/2\n" + "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    assert manifest.content_digest == "blake3:" + blake3(text.encode()).hexdigest()


def test_names_with_quotes_and_newlines_cannot_imitate_another_layout() -> None:
    plain = [entry("a"), entry("b")]
    crafted = [entry('a","U8",[1]]\n["b')]
    assert layout_digest(plain) != layout_digest(crafted)
    assert layout_digest([entry("a", shape=(1, 2))]) != layout_digest([entry("a", shape=(12,))])
    assert layout_digest([entry("a", shape=())]) != layout_digest([entry("a", shape=(0,))])
    assert layout_digest([entry("a"), entry("é\n")]).startswith("sha256:")


def test_content_digest_needs_every_tensor_and_ignores_the_order() -> None:
    first, second = entry("a", digest="blake3:1"), entry("b", digest="blake3:2")
    assert combine_content_digest([first, entry("b")]) is None
    assert combine_content_digest([first, second]) == combine_content_digest([second, first])
    assert combine_content_digest([first, second]) != layout_digest([first, second])


def test_manifest_knows_sizes_names_and_small_files(pristine: Pristine) -> None:
    manifest = read_manifest(pristine[0])
    assert manifest.total_bytes == 902912 and manifest.largest_tensor_bytes == 320 * 128 * 2
    assert manifest.by_name["lm_head.weight"].shard == "model-00003-of-00003.safetensors"
    assert set(manifest.files) == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = (pristine[0] / "config.json").read_bytes()
    assert manifest.files["config.json"] == "sha256:" + hashlib.sha256(config).hexdigest()
    assert manifest.content_digest is None


def test_digests_of_several_algorithms_are_not_combined() -> None:
    mixed = [entry("a", digest="blake3:1"), entry("b", digest="sha256:2")]
    with pytest.raises(VerificationError, match="blake3 and sha256"):
        combine_content_digest(mixed)
    with pytest.raises(VerificationError, match="md5, expected one of blake3 or sha256"):
        combine_content_digest([entry("a", digest="md5:1")])


@pytest.mark.parametrize("digested", [False, True])
def test_json_round_trip_keeps_everything(pristine: Pristine, digested: bool) -> None:
    manifest = read_manifest(pristine[0])
    manifest = with_digests(manifest, None, shard_digests=True) if digested else manifest
    again = Manifest.from_json(json.loads(json.dumps(manifest.to_json())))
    assert again == manifest and again.content_digest == manifest.content_digest
    assert manifest.to_json()["format"] == "vst-manifest/2"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "vst-manifest/3"),
        ("layout_digest", "sha256:0"),
        ("content_digest", None),
        ("total_bytes", 1),
        ("tensors", [["x"]]),
        ("tensors", 3),
        ("tensors", [["x", "U8", [1], 1, 9, 0, None]]),
        ("tensors", [["x", "U8", [True], 1, 0, 0, None]]),
        ("shards", [["../x.safetensors", 1, None]]),
        ("shards", None),
        ("files", {"config.json": "md5:1"}),
        ("path", 1),
    ],
)
def test_spoiled_json_is_refused(pristine: Pristine, key: str, value: object) -> None:
    content = with_digests(read_manifest(pristine[0]), None).to_json()
    with pytest.raises(VerificationError):
        Manifest.from_json({**content, key: value})


def test_earlier_format_is_refused_naming_both_algorithms_and_read_only_where_that_is_allowed(
    pristine: Pristine,
) -> None:
    content = earlier_manifest(pristine[0])
    with pytest.raises(VerificationError, match=r"vst-manifest/1.*SHA-256.*BLAKE3.*lane=L0"):
        Manifest.from_json(content)
    earlier = Manifest.from_json(content, earlier=True)
    assert earlier.content_digest == content["content_digest"] != with_digests(earlier, None).content_digest
    with pytest.raises(VerificationError, match="contradicts itself: content_digest"):
        Manifest.from_json({**content, "content_digest": "sha256:" + "0" * 64}, earlier=True)


@pytest.mark.parametrize(("format", "digest"), [("vst-manifest/1", "blake3:"), ("vst-manifest/2", "sha256:")])
def test_tensor_digest_of_the_other_algorithm_is_refused(pristine: Pristine, format: str, digest: str) -> None:
    content = with_digests(read_manifest(pristine[0]), None).to_json()
    content["tensors"][0][6] = digest + "0" * 64
    with pytest.raises(VerificationError, match=f"expected .*64 hex digits>, found '{digest}"):
        Manifest.from_json({**content, "format": format}, earlier=True)


def test_reversed_tensors_are_refused(pristine: Pristine) -> None:
    content = read_manifest(pristine[0]).to_json()
    with pytest.raises(VerificationError, match="canonical order"):
        Manifest.from_json({**content, "tensors": content["tensors"][::-1]})


def test_package_is_imported_without_torch_and_numpy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, vst.checkpoint.audit, vst.checkpoint.tiny, vst.checkpoint.reader, vst.checkpoint.families;"
        "sys.exit(bool({'torch', 'numpy', 'vllm'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
