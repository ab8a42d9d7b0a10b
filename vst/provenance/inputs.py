"""The inputs block: what the run worked on, each thing by digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vst.provenance.block import Block

CHECKPOINTS = ("model", "checkpoint")
DRAFTS = ("draft-model", "draft-checkpoint")
"""The drafts of a server that decodes speculatively; left out where there is none."""

OTHERS = {
    "probes": "no server was asked",
    "dataset": "no evaluation ran",
    "prompts": "no evaluation ran",
}
TEMPLATES = ("chat_template.jinja", "chat_template.json")
TOKENIZERS = (
    "added_tokens.json", "merges.txt", "special_tokens_map.json", "spiece.model", "tekken.json", "tiktoken.model",
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
)  # fmt: skip


def inputs_block(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """``inputs`` as the lanes filled it, with tokenizer and template taken out, and reasons for what is not there."""
    block = Block()
    for role in CHECKPOINTS:
        found = inputs.get(role)
        block.put(
            role, _checkpoint(role, found) if found else None, "the lane does not read it, or the audit refused it"
        )
    for role in DRAFTS:
        if found := inputs.get(role):
            block.put(role, _checkpoint(role, found))
    for key in sorted({*OTHERS, *inputs} - {*CHECKPOINTS, *DRAFTS}):
        block.put(key, inputs.get(key), OTHERS.get(key, "nothing said so"))
    return block.to_json()


def _checkpoint(role: str, found: Mapping[str, Any]) -> dict[str, Any]:
    block = _explained(role, found)
    block.put("shards", [_explained(role, shard).to_json() for shard in found.get("shards", ())])
    files = found.get("files") or {}
    tokenizer = {name: files[name] for name in TOKENIZERS if name in files}
    block.put("tokenizer", tokenizer or None, "the checkpoint has no tokenizer")
    template = {name: files[name] for name in TEMPLATES if name in files}
    block.put(
        "chat_template", template or None, "no file of its own; one in tokenizer_config.json is covered by that digest"
    )
    return block.to_json()


def _explained(role: str, found: Mapping[str, Any]) -> Block:
    block = Block()
    for key, value in found.items():
        declared = f"not declared: {role}.{key.removeprefix('declared_')}"
        block.put(
            key, value, declared if key.startswith("declared_") else "not computed: the audit refused a file first"
        )
    return block
