"""The zoo: every architecture can be made, is whole, and differs from its other half where it can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vst.checkpoint.audit import audit
from vst.checkpoint.digests import with_digests
from vst.checkpoint.families import families
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.reader import TensorReader
from vst.checkpoint.zoo.catalogue import CATALOGUE
from vst.checkpoint.zoo.make import make_zoo_pair
from vst.confdir import conf_dir
from vst.errors import ConfigError
from vst.verdict import Outcome

CONSTANT = ("g_idx", "qzeros")
"""What a symmetric GPTQ checkpoint stores is the same in all of them."""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


def test_every_architecture_has_an_option_and_a_place_in_the_experiment() -> None:
    options = {path.stem: yaml.safe_load(path.read_text()) for path in (conf_dir() / "model/zoo").glob("*.yaml")}
    assert {name: one["generate"] for name, one in options.items()} == {name: f"zoo/{name}" for name in CATALOGUE}
    experiment = yaml.safe_load((conf_dir() / "experiment/architectures.yaml").read_text())
    swept = experiment["hydra"]["sweeper"]["params"]["model"].removeprefix("choice(").rstrip(")").split(",")
    assert [name.strip() for name in swept] == [f"zoo/{name}" for name in CATALOGUE]
    assert len(CATALOGUE) >= 20


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_pair_passes_the_audit_and_differs_in_every_tensor(zoo: Path, name: str) -> None:
    a, b = make_zoo_pair(zoo, name)
    result = audit({"model": a, "checkpoint": b})
    bad = [check for check in result.checks if check.outcome not in (Outcome.PASS, Outcome.NOT_APPLICABLE)]
    assert bad == []
    one, other = result.manifests["model"], result.manifests["checkpoint"]
    assert len(one.shards) == 3
    same = [e.name for e, f in zip(one.tensors, other.tensors, strict=True) if e.digest == f.digest]
    assert {entry.rpartition(".")[2] for entry in same} <= (set(CONSTANT) if name == "llama-gptq" else set())


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_tensor_keeps_a_neutral_value(zoo: Path, name: str) -> None:
    manifest = read_manifest(make_zoo_pair(zoo, name)[0])
    with TensorReader(manifest) as reader:
        for entry in manifest.tensors:
            buffer = bytearray(entry.nbytes)
            reader.read_into(entry, memoryview(buffer))
            size = entry.nbytes // max(1, len(buffer) // max(1, entry.nbytes))
            width = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I8": 1}[entry.dtype]
            values = {bytes(buffer[at : at + width]) for at in range(0, size, width)}
            assert len(values) > 1 or entry.name.endswith(CONSTANT), entry.name


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mixtral", {"router", "expert_0", "expert_3"}),
        ("granite-hybrid", {"router", "expert_fused", "expert_shared", "state_space"}),
        ("gpt-oss", {"router", "expert_fused", "bias"}),
        ("deepseek-v3", {"router", "expert_2", "expert_shared", "bias"}),
        ("mamba2", {"state_space", "norm", "head"}),
        ("llama-int8", {"scale"}),
    ],
)
def test_the_special_families_are_there(zoo: Path, name: str, wanted: set[str]) -> None:
    a, _ = make_zoo_pair(zoo, name)
    found = families(read_manifest(a), json.loads((a / "config.json").read_text()))
    assert wanted <= set(found)
    assert "other" not in found


@pytest.mark.parametrize("name", [name for name, one in CATALOGUE.items() if "tied" in one.traits])
def test_a_tied_model_has_no_head_of_its_own(zoo: Path, name: str) -> None:
    a, _ = make_zoo_pair(zoo, name)
    config: dict[str, Any] = json.loads((a / "config.json").read_text())
    assert config["tie_word_embeddings"] is True
    assert "head" not in families(read_manifest(a), config)


def test_the_bytes_do_not_depend_on_when_they_are_made(zoo: Path, tmp_path: Path) -> None:
    for one, other in zip(make_zoo_pair(zoo, "qwen2-tied"), make_zoo_pair(tmp_path, "qwen2-tied"), strict=True):
        first, second = (with_digests(read_manifest(path), None) for path in (one, other))
        assert first.content_digest == second.content_digest


def test_a_whole_pair_is_reused_and_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    a, b = make_zoo_pair(tmp_path, "llama")
    before = {path: path.stat().st_ino for path in (a, b)}
    make_zoo_pair(tmp_path, "llama")
    assert {path: path.stat().st_ino for path in (a, b)} == before
    shard = next(b.glob("*.safetensors"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    make_zoo_pair(tmp_path, "llama")
    assert shard.read_bytes() == content


def test_an_unknown_architecture_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such architecture; there are llama, "):
        make_zoo_pair(tmp_path, "lama")
