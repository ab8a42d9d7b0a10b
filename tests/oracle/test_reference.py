from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oracle.answers import record
from vst.errors import VerificationError
from vst.oracle.reference import (
    Reference,
    ReferenceCache,
    ReferenceKey,
    comparable_facts,
    differing,
    read_reference,
    stable_facts,
)
from vst.server.facts import Instance, ServerFacts

KEY = ReferenceKey(
    content_digest="blake3:b",
    files={"config.json": "sha256:c"},
    flags=("cpu", "--dtype", "bfloat16"),
    env={"VLLM_ATTENTION_BACKEND": "X"},
    versions={"vllm": "0.32.0", "torch": "2.13.0"},
    probes="sha256:p",
)
REFERENCE = Reference(record(), "blake3:b", {"version": "0.32.0"}, "a cold server of this run")

OTHER_KEYS: dict[str, dict[str, Any]] = {
    "content": {"content_digest": "blake3:a"},
    "config": {"files": {"config.json": "sha256:d"}},
    "flags": {"flags": ("cpu", "--dtype", "float32")},
    "order of flags": {"flags": ("--dtype", "cpu", "bfloat16")},
    "environment": {"env": {}},
    "version": {"versions": {"vllm": "0.32.1", "torch": "2.13.0"}},
    "probes": {"probes": "sha256:q"},
}


@pytest.mark.parametrize("what", OTHER_KEYS)
def test_a_reference_of_another_key_is_not_found(tmp_path: Path, what: str) -> None:
    cache = ReferenceCache(tmp_path / "references")
    cache.store(KEY, REFERENCE)
    found = cache.load(KEY)
    assert found is not None and (found.record, found.facts) == (REFERENCE.record, REFERENCE.facts)
    assert cache.load(replace(KEY, **OTHER_KEYS[what])) is None


def test_the_machine_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    here = KEY.digest
    assert KEY.digest == here
    monkeypatch.setattr("vst.oracle.reference.machine", lambda: {"architecture": "other"})
    assert KEY.digest != here


def test_an_empty_cache_has_nothing(tmp_path: Path) -> None:
    assert ReferenceCache(tmp_path / "none").load(KEY) is None


DAMAGE = {
    "empty": b"",
    "cut": b'{"format": "vst-ref',
    "text": b"hello",
    "null": b"null",
    "a list": b"[]",
    "not utf-8": b"\xff\xfe",
    "another format": b'{"format": "x"}',
    "no record": b'{"format": "vst-reference/2", "sha256": "x"}',
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_entry_counts_as_none_and_can_be_stored_again(tmp_path: Path, what: str) -> None:
    cache = ReferenceCache(tmp_path)
    cache.path(KEY).write_bytes(DAMAGE[what])
    assert cache.load(KEY) is None
    with pytest.raises(VerificationError, match=str(cache.path(KEY))):
        read_reference(cache.path(KEY))
    cache.store(KEY, REFERENCE)
    assert cache.load(KEY) is not None


@pytest.mark.parametrize("place", ["record", "facts"])
def test_a_changed_value_is_damage(tmp_path: Path, place: str) -> None:
    cache = ReferenceCache(tmp_path)
    cache.store(KEY, REFERENCE)
    data = json.loads(cache.path(KEY).read_text())
    if place == "record":
        data["record"]["answers"][0]["prompt_logprobs"][0] += 0.001
    else:
        data["facts"]["version"] = "0.31.0"
    cache.path(KEY).write_text(json.dumps(data))
    assert cache.load(KEY) is None
    with pytest.raises(VerificationError, match="damaged"):
        read_reference(cache.path(KEY))


def test_a_reference_of_a_under_the_name_of_b_is_not_taken_for_one_of_b(tmp_path: Path) -> None:
    cache, of_a = ReferenceCache(tmp_path), replace(KEY, content_digest="blake3:a")
    cache.store(of_a, REFERENCE)
    shutil.copy(cache.path(of_a), cache.path(KEY))
    assert cache.load(KEY) is None
    assert cache.load(of_a) is not None


def test_a_reference_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="cannot be read"):
        read_reference(tmp_path / "none.json")


def facts(
    config: dict[str, Any] | None = None, env: dict[str, Any] | None = None, version: str = "0.32.0"
) -> ServerFacts:
    return ServerFacts(
        version=version,
        models=(),
        routes=(),
        world_size=1,
        paused=False,
        sleeping=False,
        weight_version=None,
        instance=Instance("1", "2"),
        config=config or {},
        env=env or {},
        system={"torch_version": "2.13.0", "cpu_info": "model name: X\ncpu MHz: 2000.1\n" * 20},
    )


def apart(left: ServerFacts, right: ServerFacts) -> list[str]:
    return sorted(differing(comparable_facts(left), comparable_facts(right)))


def under(section: str, key: str, value: Any) -> ServerFacts:
    return facts({section: {key: value}})


MUST_AGREE: dict[str, tuple[ServerFacts, ServerFacts, str]] = {
    "eager or graphs": (
        under("model_config", "enforce_eager", True),
        under("model_config", "enforce_eager", False),
        "model_config.enforce_eager",
    ),
    "implementation": (
        under("model_config", "model_impl", "vllm"),
        under("model_config", "model_impl", "transformers"),
        "model_config.model_impl",
    ),
    "cache dtype": (
        under("cache_config", "cache_dtype", "auto"),
        under("cache_config", "cache_dtype", "fp8"),
        "cache_config.cache_dtype",
    ),
    "batch size": (
        under("scheduler_config", "max_num_batched_tokens", 1),
        under("scheduler_config", "max_num_batched_tokens", 2),
        "scheduler_config.max_num_batched_tokens",
    ),
    "attention backend": (
        facts(env={"VLLM_ATTENTION_BACKEND": "A"}),
        facts(env={"VLLM_ATTENTION_BACKEND": "B"}),
        "env.VLLM_ATTENTION_BACKEND",
    ),
    "another function": (
        facts({"speculative_config": {"draft_model_config": {"hf_overrides": "<function f at 0x7f74a749d580>"}}}),
        facts({"speculative_config": {"draft_model_config": {"hf_overrides": "<function g at 0x7f74a749d580>"}}}),
        "speculative_config.draft_model_config.hf_overrides",
    ),
    "a key on one side": (under("lora_config", "rank", 8), facts(), "lora_config.rank"),
    "version": (facts(), facts(version="0.32.1"), "version"),
}


def test_where_an_object_lies_in_memory_may_differ() -> None:
    left = under("model_config", "hf_overrides", ["<function f at 0x7f74a749d580>", {"a": "<B object at 0x1>"}])
    right = under("model_config", "hf_overrides", ["<function f at 0x7ffa4bab1580>", {"a": "<B object at 0x2>"}])
    assert apart(left, right) == []
    assert stable_facts(left) == stable_facts(right)


@pytest.mark.parametrize("what", MUST_AGREE)
def test_what_can_change_an_answer_must_agree_and_is_named(what: str) -> None:
    """K38."""
    left, right, key = MUST_AGREE[what]
    assert apart(left, right) == apart(right, left) == [key]


def test_names_ports_and_places_may_differ() -> None:
    def one(value: str) -> ServerFacts:
        config = {
            "instance_id": value,
            "model_config": {"model": value, "tokenizer": value, "served_model_name": value},
            "parallel_config": {"master_port": value},
            "cache_config": {"num_gpu_blocks": value},
        }
        return facts(config, {"VLLM_PORT": value, "CUDA_VISIBLE_DEVICES": value})

    assert apart(one("1"), one("2")) == []


def test_the_clock_of_the_processor_does_not_make_two_servers_differ() -> None:
    slower = replace(facts(), system={**facts().system, "cpu_info": "model name: X\ncpu MHz: 1234.5\n" * 20})
    other = replace(facts(), system={**facts().system, "cpu_info": "model name: Y\ncpu MHz: 2000.1\n" * 20})
    assert apart(facts(), slower) == []
    assert apart(facts(), other) == ["system.cpu_info"]


@pytest.mark.parametrize(
    "name", ["VLLM_API_KEY", "HF_TOKEN", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "db_password", "hf_token"]
)
def test_secrets_are_left_out_at_any_depth(name: str) -> None:
    found = comparable_facts(facts({"deep": {"er": {name: "s3cr3t"}}}, {name: "s3cr3t"}))
    assert "s3cr3t" not in json.dumps(found)


def test_a_reference_that_does_not_say_of_which_checkpoint_it_is_has_to_be_taken_again() -> None:
    with pytest.raises(VerificationError, match="does not say of which checkpoint .* lane=record"):
        Reference.from_json({**REFERENCE.to_json(), "format": "vst-reference/1"}, "old.json")


def test_the_checkpoint_of_a_reference_cannot_be_changed_unnoticed() -> None:
    data = REFERENCE.to_json()
    assert Reference.from_json(data, "x").content_digest == "blake3:b"
    with pytest.raises(VerificationError, match="damaged"):
        Reference.from_json({**data, "content_digest": "blake3:c"}, "x")
