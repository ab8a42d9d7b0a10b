"""Lane L0 on real files: the acceptance cases and every other way in which a pair can be wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vst.checkpoint import digests
from vst.checkpoint.audit import AuditOptions, audit
from vst.checkpoint.digests import with_digests
from vst.checkpoint.index import INDEX_NAME
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.storage import Mount
from vst.checkpoint.writer import Tensor, write_index, write_safetensors
from vst.errors import ConfigError
from vst.verdict import Check, LaneVerdict, Outcome

from .earlier import earlier_manifest

Checks = Callable[..., dict[str, Check]]
Pair = dict[str, Path]
FIRST, SECOND, THIRD = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def tensors_of(directory: Path, shard: str) -> dict[str, Tensor]:
    data = (directory / shard).read_bytes()
    found = [entry for entry in read_manifest(directory).tensors if entry.shard == shard]
    return {entry.name: (entry.dtype, entry.shape, data[entry.offset : entry.offset + entry.nbytes]) for entry in found}


def rewrite(directory: Path, shard: str, change: Callable[[dict[str, Tensor]], Any], reindex: bool = True) -> None:
    """Writes a shard again after ``change``, and the index to match."""
    tensors = tensors_of(directory, shard)
    others = {entry.name: entry.shard for entry in read_manifest(directory).tensors if entry.shard != shard}
    change(tensors)
    write_safetensors(directory / shard, tensors)
    if reindex:
        manifest_bytes = sum(len(data) for name in {*others.values()} for _, _, data in _all(directory, name))
        total = manifest_bytes + sum(len(data) for _, _, data in tensors.values())
        write_index(directory, others | dict.fromkeys(tensors, shard), total)


def _all(directory: Path, shard: str) -> list[tuple[str, Any, bytes]]:
    from vst.checkpoint.header import read_header

    data = (directory / shard).read_bytes()
    header = read_header(directory / shard)
    return [(item.dtype, item.shape, data[item.offset : item.offset + item.nbytes]) for item in header.tensors]


def refused(check: Check, *words: str) -> None:
    assert check.outcome is Outcome.REFUSED
    for word in words:
        assert word in check.reason


def test_sound_pair_passes_every_check_in_order(pair: Pair, checks: Checks) -> None:
    found = checks(pair)
    ids = ["format", "index", "config", "pair", "trusted", "finite", "storage"]
    assert list(found) == [f"files.{name}" for name in ids]
    assert found.pop("files.trusted").outcome is Outcome.NOT_APPLICABLE
    assert {check.outcome for check in found.values()} == {Outcome.PASS}
    assert not any(check.warnings for check in found.values())
    assert LaneVerdict("L0", tuple(found.values())).passed


def test_pair_reports_how_much_differs(pair: Pair, checks: Checks) -> None:
    observed = checks(pair)["files.pair"].observed
    assert observed["differing_tensors"] == observed["tensors"] == 30
    assert observed["differing_bytes"] == observed["bytes"] == 902912
    assert observed["layout_digest"]["model"] == observed["layout_digest"]["checkpoint"]


def test_single_role_has_no_pair_check(pair: Pair, checks: Checks) -> None:
    found = checks({"checkpoint": pair["checkpoint"]})
    assert "files.pair" not in found and found["files.format"].outcome is Outcome.PASS


def test_nothing_to_audit_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError):
        audit({})


def test_k1_shard_that_is_not_on_disk_is_refused_by_name(pair: Pair, checks: Checks) -> None:
    (pair["checkpoint"] / SECOND).unlink()
    found = checks(pair)
    refused(found["files.index"], SECOND, "not on disk", str(pair["checkpoint"]))
    for name in ("files.config", "files.pair", "files.trusted", "files.finite", "files.storage"):
        refused(found[name], "not evaluated: files.index did not hold")


def test_k2_truncated_shard_is_refused_by_name(pair: Pair, checks: Checks) -> None:
    path = pair["checkpoint"] / SECOND
    os.truncate(path, path.stat().st_size - 1)
    found = checks(pair)
    refused(found["files.format"], str(path), f"truncated: {path.stat().st_size} bytes")
    refused(found["files.index"], "not evaluated: files.format did not hold")
    refused(found["files.pair"], "not evaluated: files.format did not hold")


def test_k3_tensor_that_the_index_does_not_name_is_refused_with_both_files(pair: Pair, checks: Checks) -> None:
    directory = pair["checkpoint"]
    rewrite(directory, FIRST, lambda tensors: tensors.update(extra=("U8", (1,), b"x")), reindex=False)
    refused(checks(pair)["files.index"], "'extra'", FIRST, INDEX_NAME)


def test_k3_same_tensor_in_two_shards_is_refused_with_both_files(pair: Pair, checks: Checks) -> None:
    directory = pair["checkpoint"]
    copied = tensors_of(directory, FIRST)["model.embed_tokens.weight"]
    rewrite(directory, THIRD, lambda tensors: tensors.update({"model.embed_tokens.weight": copied}), reindex=False)
    refused(checks(pair)["files.index"], "'model.embed_tokens.weight'", FIRST, THIRD, "two shards")


def test_same_tensor_in_two_shards_is_refused_without_an_index(pair: Pair, checks: Checks) -> None:
    directory = pair["checkpoint"]
    (directory / INDEX_NAME).unlink()
    shutil.copy(directory / FIRST, directory / "copy.safetensors")
    refused(checks(pair)["files.index"], "'copy.safetensors'", FIRST, "two shards")


def test_tensor_in_another_shard_than_the_index_says_is_refused(pair: Pair, checks: Checks) -> None:
    edit(pair["checkpoint"] / INDEX_NAME, lambda index: index["weight_map"].update({"lm_head.weight": SECOND}))
    refused(checks(pair)["files.index"], "'lm_head.weight'", SECOND, THIRD)


def test_tensor_that_only_the_index_names_is_refused(pair: Pair, checks: Checks) -> None:
    edit(pair["checkpoint"] / INDEX_NAME, lambda index: index["weight_map"].update(ghost=SECOND))
    refused(checks(pair)["files.index"], "'ghost'", SECOND, "does not hold it")


def test_wrong_total_size_is_refused(pair: Pair, checks: Checks) -> None:
    edit(pair["checkpoint"] / INDEX_NAME, lambda index: index["metadata"].update(total_size=7))
    refused(checks(pair)["files.index"], "total_size is 7", "902912")


def test_shard_that_the_index_does_not_name_is_refused_unless_allowed(pair: Pair, checks: Checks) -> None:
    write_safetensors(pair["model"] / "extra.safetensors", {"x": ("U8", (1,), b"x")})
    refused(checks(pair)["files.index"], "'extra.safetensors'")
    found = checks(pair, allow_extra_shards=True)["files.index"]
    assert found.outcome is Outcome.PASS and "extra.safetensors" in found.warnings[0]


def test_index_that_leaves_the_directory_is_refused(pair: Pair, checks: Checks) -> None:
    edit(pair["model"] / INDEX_NAME, lambda index: index["weight_map"].update({"lm_head.weight": f"../b/{THIRD}"}))
    refused(checks(pair)["files.index"], "inside the directory")


def test_directory_that_does_not_exist_is_refused(pair: Pair, checks: Checks) -> None:
    found = checks({**pair, "checkpoint": pair["checkpoint"] / "absent"})
    refused(found["files.index"], "absent")
    assert found["files.format"].outcome is Outcome.REFUSED


def test_problems_of_both_checkpoints_are_listed_and_long_lists_are_counted(pair: Pair, checks: Checks) -> None:
    for path in pair.values():
        edit(path / INDEX_NAME, lambda index: index["weight_map"].update({f"ghost{n}": FIRST for n in range(15)}))
    reason = checks(pair)["files.index"].reason
    assert all(f"{path}: tensor 'ghost1'" in reason for path in pair.values()) and "and 10 more" in reason


def trusted_files(directory: Path, target: Path) -> list[Path]:
    manifest = with_digests(read_manifest(directory), None, shard_digests=True)
    sums = {shard.name: hashlib.sha256((directory / shard.name).read_bytes()).hexdigest() for shard in manifest.shards}
    contents = {
        "manifest.json": json.dumps(manifest.to_json()),
        "SHA256SUMS": "".join(f"{digest}  {name}\n" for name, digest in sums.items()),
        "binary.sums": "".join(f"{digest.upper()} *./{name}\n" for name, digest in sums.items()),
        "plain.json": json.dumps(sums),
        "prefixed.json": json.dumps({name: f"sha256:{digest}" for name, digest in sums.items()}),
    }
    for name, text in contents.items():
        (target / name).write_text(text)
    return [target / name for name in contents]


def test_trusted_digests_in_every_form_are_accepted_for_the_same_files(
    pair: Pair, checks: Checks, tmp_path: Path
) -> None:
    for path in trusted_files(pair["checkpoint"], tmp_path):
        found = checks(pair, {"checkpoint": path})["files.trusted"]
        assert found.outcome is Outcome.PASS and "model" in found.warnings[0]


def test_k4_shard_that_differs_from_the_trusted_digest_is_refused_by_name(
    pair: Pair, checks: Checks, tmp_path: Path
) -> None:
    trusted = trusted_files(pair["checkpoint"], tmp_path)
    with open(pair["checkpoint"] / SECOND, "r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\x11")
    for path in trusted:
        found = checks(pair, {"checkpoint": path}, content=False)["files.trusted"]
        refused(found, SECOND)
        assert FIRST not in found.reason and THIRD not in found.reason


@pytest.mark.parametrize("text", ["", "{}", "not a digest", '{"format":"vst-manifest/2"}', '{"x":"12"}', "{" * 99])
def test_unusable_trusted_manifest_is_refused(pair: Pair, checks: Checks, tmp_path: Path, text: str) -> None:
    (tmp_path / "trusted").write_text(text)
    refused(checks(pair, {"model": tmp_path / "trusted"})["files.trusted"], str(tmp_path / "trusted"))


def test_trusted_manifest_of_the_earlier_format_is_refused_naming_both_algorithms(
    pair: Pair, checks: Checks, tmp_path: Path
) -> None:
    (tmp_path / "trusted").write_text(json.dumps(earlier_manifest(pair["model"])))
    found = checks(pair, {"model": tmp_path / "trusted"})["files.trusted"]
    refused(found, "vst-manifest/1", "SHA-256", "BLAKE3", "lane=L0")
    assert "has digest" not in found.reason


def test_blake3_digest_of_a_trusted_file_is_refused_and_not_compared(
    pair: Pair, checks: Checks, tmp_path: Path
) -> None:
    (tmp_path / "trusted").write_text(json.dumps({FIRST: "blake3:" + "0" * 64}))
    refused(checks(pair, {"model": tmp_path / "trusted"})["files.trusted"], FIRST, "BLAKE3", "SHA-256", "sha256sum")


def test_shards_have_a_digest_where_evidence_or_a_trusted_file_asks_for_it(pair: Pair, tmp_path: Path) -> None:
    trusted = {"checkpoint": trusted_files(pair["checkpoint"], tmp_path)[1]}
    both = audit(pair).manifests
    content = audit(pair, AuditOptions(shard_digests=False), trusted).manifests
    assert [shard.digest is not None for shard in both["model"].shards] == [True] * 3
    assert [shard.digest for shard in content["model"].shards] == [None] * 3
    assert content["checkpoint"].shards == both["checkpoint"].shards
    assert all(content[role].content_digest == both[role].content_digest for role in pair)


def test_trusted_manifest_must_name_every_shard_and_no_other(pair: Pair, checks: Checks, tmp_path: Path) -> None:
    path = trusted_files(pair["model"], tmp_path)[3]
    edit(path, lambda content: content.update({"more.safetensors": content.pop(FIRST)}))
    refused(checks(pair, {"model": path})["files.trusted"], "'more.safetensors'", f"'{FIRST}' has no trusted digest")
    refused(checks({"model": pair["model"]}, {"typo": path})["files.trusted"], "'typo'")


def make_float8(tensors: dict[str, Tensor], scale: str | None) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    _, shape, data = tensors[name]
    tensors[name] = ("F8_E4M3", shape, bytes(byte & 0x3F for byte in data[::2]))
    if scale:
        tensors[name.removesuffix("weight") + scale] = ("F32", (1,), b"\0\0\x80\x3f")


def test_k6_float8_weight_without_scale_is_refused_unless_declared(pair: Pair, checks: Checks) -> None:
    for path in pair.values():
        rewrite(path, SECOND, lambda tensors: make_float8(tensors, None))
    found = checks(pair)["files.config"]
    refused(found, "model.layers.1.mlp.up_proj.weight", SECOND, "weight_scale")
    declared = checks(pair, allow_missing_scales=("model.layers.*.up_proj.weight",))["files.config"]
    assert declared.outcome is Outcome.PASS and len(declared.warnings) == 2
    assert checks(pair, allow_missing_scales=("lm_head*",))["files.config"].outcome is Outcome.REFUSED


@pytest.mark.parametrize("scale", ["weight_scale", "weight_scale_inv"])
def test_float8_weight_with_its_scale_passes(pair: Pair, checks: Checks, scale: str) -> None:
    for path in pair.values():
        rewrite(path, SECOND, lambda tensors: make_float8(tensors, scale))
    found = checks(pair)
    assert found["files.config"].outcome is Outcome.PASS
    assert found["files.config"].observed["model"]["quantised_tensors"] == 1


def test_k7_tied_flag_with_a_distinct_head_is_refused_or_warned_about(pair: Pair, checks: Checks) -> None:
    for path in pair.values():
        edit(path / "config.json", lambda config: config.update(tie_word_embeddings=True))
    refused(checks(pair)["files.config"], "tie_word_embeddings is true", "'lm_head.weight'", THIRD)
    found = checks(pair, allow_tied_mismatch=True)["files.config"]
    assert found.outcome is Outcome.PASS and "lm_head.weight" in found.warnings[0]


def test_k7_untied_flag_without_a_head_is_refused_or_warned_about(pair: Pair, checks: Checks) -> None:
    for path in pair.values():
        rewrite(path, THIRD, lambda tensors: tensors.pop("lm_head.weight"))
    refused(checks(pair)["files.config"], "tie_word_embeddings is false", "no head tensor")
    assert checks(pair, allow_tied_mismatch=True)["files.config"].warnings


def test_k7_tied_head_that_is_a_copy_is_only_warned_about(pair: Pair, checks: Checks) -> None:
    for path in pair.values():
        embedding = tensors_of(path, FIRST)["model.embed_tokens.weight"]
        rewrite(path, THIRD, lambda tensors, same=embedding: tensors.update({"lm_head.weight": same}))  # type: ignore[misc]
        edit(path / "config.json", lambda config: config.update(text_config={"tie_word_embeddings": True}))
        edit(path / "config.json", lambda config: config.pop("tie_word_embeddings"))
    found = checks(pair)["files.config"]
    assert found.outcome is Outcome.PASS and "copy" in found.warnings[0]


def test_k7_missing_head_with_a_silent_config_is_warned_about(pair: Pair, checks: Checks) -> None:
    for path in pair.values():
        rewrite(path, THIRD, lambda tensors: tensors.pop("lm_head.weight"))
        edit(path / "config.json", lambda config: config.pop("tie_word_embeddings"))
    found = checks(pair)["files.config"]
    assert found.outcome is Outcome.PASS and "taken as tied" in found.warnings[0]


@pytest.mark.parametrize("text", ["", "[]", "{" * 100_000, '{"architectures":[]}', "\xff", "{}"])
def test_unusable_config_is_refused(pair: Pair, checks: Checks, text: str) -> None:
    (pair["model"] / "config.json").write_text(text, encoding="latin-1")
    refused(checks(pair)["files.config"], str(pair["model"]))


def test_missing_config_is_refused(pair: Pair, checks: Checks) -> None:
    (pair["model"] / "config.json").unlink()
    refused(checks(pair)["files.config"], "config.json")


def test_config_with_infinity_is_accepted(pair: Pair, checks: Checks) -> None:
    for path in pair.values():
        edit(path / "config.json", lambda config: config.update(time_step_limit=[0.0, float("inf")]))
    assert checks(pair)["files.config"].outcome is Outcome.PASS


def test_k8_identical_bytes_are_refused_as_nothing_to_observe(pair: Pair, checks: Checks) -> None:
    found = checks({"model": pair["model"], "checkpoint": pair["model"]})["files.pair"]
    refused(found, "nothing to observe: A and B have the same content")
    assert found.observed["differing_tensors"] == 0
    assert found.observed["equal_by_family"]["norm"] == 7


def test_k8_identical_tensors_in_other_shards_are_the_same_content(pair: Pair, checks: Checks) -> None:
    one = pair["model"].parent / "one"
    one.mkdir()
    parts = [tensors_of(pair["model"], shard) for shard in (THIRD, SECOND, FIRST)]
    write_safetensors(one / "model.safetensors", {name: tensor for part in parts for name, tensor in part.items()})
    shutil.copy(pair["model"] / "config.json", one)
    refused(checks({"model": pair["model"], "checkpoint": one})["files.pair"], "nothing to observe")


def test_pair_that_differs_in_one_tensor_passes_and_warns(pair: Pair, checks: Checks) -> None:
    other = shutil.copytree(pair["model"], pair["model"].parent / "other")
    zeros = ("BF16", (128,), b"\0" * 256)
    rewrite(other, THIRD, lambda tensors: tensors.update({"model.norm.weight": zeros}))
    found = checks({"model": pair["model"], "checkpoint": other})["files.pair"]
    assert found.outcome is Outcome.PASS and found.observed["differing_tensors"] == 1
    assert "29 of 30 tensors are equal" in found.warnings[0]


def test_pair_without_digests_is_inconclusive(pair: Pair, checks: Checks) -> None:
    found = checks(pair, content=False)["files.pair"]
    assert found.outcome is Outcome.INCONCLUSIVE and found.observed["contents"] == "not compared"


def test_pair_of_different_layouts_is_refused_with_the_tensors(pair: Pair, checks: Checks) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["model.norm.weight"] = ("F16", (128,), b"\0" * 256)
        tensors["lm_head.weight"] = ("BF16", (1, 128), b"\0" * 256)
        tensors["new"] = tensors.pop("model.layers.2.input_layernorm.weight")

    rewrite(pair["checkpoint"], THIRD, change)
    check = checks(pair)["files.pair"]
    refused(check, "'model.norm.weight' is BF16 [128] in A and F16 [128] in B", "[1, 128] in B", "'new' is only in")
    assert "'model.layers.2.input_layernorm.weight' is only in" in check.reason


def test_pair_with_different_configs_is_warned_about(pair: Pair, checks: Checks) -> None:
    edit(pair["checkpoint"] / "config.json", lambda config: config.update(rope_theta=5e5))
    assert "config.json" in checks(pair)["files.pair"].warnings[0]


def test_network_file_system_is_refused_unless_allowed(pair: Pair) -> None:
    mounts = [Mount("/", "ext4", "/dev/root"), Mount(str(pair["checkpoint"].resolve()), "nfs4", "server:/export")]
    found = {check.id: check for check in audit(pair, AuditOptions(), mounts=mounts).checks}["files.storage"]
    refused(found, "nfs4", str(pair["checkpoint"]), "allow_network_fs")
    assert found.observed == {"model": ["ext4"], "checkpoint": ["nfs4"]}
    options = AuditOptions(allow_network_fs=True)
    allowed = {check.id: check for check in audit(pair, options, mounts=mounts).checks}["files.storage"]
    assert allowed.outcome is Outcome.PASS and "nfs4" in allowed.warnings[0]


def test_not_finite_tensor_is_refused_by_name_and_index(pair: Pair, checks: Checks) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        dtype, shape, data = tensors["model.layers.1.mlp.up_proj.weight"]
        spoiled = bytes(data[: 2 * 130]) + b"\x80\x7f" + bytes(data[2 * 131 :])
        tensors["model.layers.1.mlp.up_proj.weight"] = (dtype, shape, spoiled)

    rewrite(pair["checkpoint"], SECOND, change)
    refused(checks(pair)["files.finite"], "model.layers.1.mlp.up_proj.weight", SECOND, "first at index [1, 2]")
    skipped = checks(pair, finite_limit_bytes=1000)["files.finite"]
    assert skipped.outcome is Outcome.NOT_APPLICABLE and "finite=always" in skipped.reason
    assert checks(pair, finite="never")["files.finite"].outcome is Outcome.NOT_APPLICABLE
    refused(checks(pair, finite="always", finite_limit_bytes=1000)["files.finite"])


def test_digest_cache_in_an_unwritable_place_is_only_a_warning(pair: Pair, checks: Checks, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in pair.values():
        for name in path.iterdir():
            os.utime(name, ns=(0, 0))
    found = checks(pair, digest_cache=tmp_path / "file" / "cache")
    assert found["files.pair"].outcome is Outcome.PASS


def test_shard_that_changes_during_the_audit_is_refused(
    pair: Pair, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = digests.digest_stretch

    def disturbed(fd: int, path: Path, *rest: Any) -> Any:
        os.utime(path, ns=(1, 1))
        return original(fd, path, *rest)

    monkeypatch.setattr(digests, "digest_stretch", disturbed)
    found = checks(pair)
    refused(found["files.format"], "changed while it was read", str(pair["model"]))
    refused(found["files.pair"], "not evaluated: files.format did not hold")


def test_audit_gives_the_manifests_with_their_digests(pair: Pair) -> None:
    result = audit(pair)
    assert set(result.manifests) == {"model", "checkpoint"}
    assert all(manifest.content_digest for manifest in result.manifests.values())
