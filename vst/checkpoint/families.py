"""Which part of a model a checkpoint tensor belongs to, from its name.

The families are ``embedding``, ``head``, ``norm``, ``attention_in``, ``attention_out``, ``mlp_in``, ``mlp_out``,
``router``, ``state_space``, ``scale``, ``bias``, ``mtp``, ``other`` and one ``expert_<group>`` per expert group:
``expert_0``, ``expert_1``, … (expert number i of all layers, no leading zeros), ``expert_shared``, and ``expert_fused``
where one tensor holds all experts of a layer.

What only drafts (``mtp``: the layers of multi-token prediction, which the model itself does not compute with) is taken
before all. Scales and biases are next, by suffix, wherever they are; then norms and state-space parameters, routers,
experts, and the rest by the word that names the projection. Names follow the checkpoints of Llama, Qwen, Mistral,
Mixtral, Gemma, Phi, OLMo, gpt-oss, DeepSeek, GPT-NeoX, StableLM, Falcon-H1, Bamba, Mamba-2 and Nemotron-H as published
on the Hugging Face hub.
"""

from __future__ import annotations

import re
from typing import Any

from vst.checkpoint.manifest import Manifest, TensorEntry

SCALE = re.compile(
    r"(.*_)?(scale|scales|scale_inv|scale_2|scale_factor|zero_point|global_scale|qzeros|g_idx|zeros|weight_shape)"
)
BIAS = re.compile(r"(.*_)?bias")
STATE = {"A_log", "A", "D", "dt_bias"}
STATE_WORDS = {"conv1d", "x_proj", "dt_proj", *(f"in_proj_{part}" for part in ("qkvz", "ba", "qkv", "z", "a", "b"))}
STATE_PARENTS = {"mamba", "mixer", "ssm", "linear_attn", "mamba_mixer"}
STATE_CONFIG = re.compile(r"(mamba|ssm|state_|d_state|conv_kernel|time_step|linear_).*")
NORM = re.compile(r".*norm(s|_f|_\d+)?|ln_?(\d+|f|attn|mlp)|norm[12f]")
ROUTER_PARENTS = re.compile(r".*(mlp|moe|feed_forward|ffn|mixer|mlp_block)")
ROUTERS = {"router", "shared_expert_gate", "shared_experts_gate"}
EXPERTS = {"experts", "local_experts"}
SHARED = {"shared_expert", "shared_experts", "shared_mlp"}
FUSED = {"input_linear", "output_linear"}
MLP_PARENTS = re.compile(r"mlp|feed_forward|ffn|ff")
HEADS = {"lm_head", "embed_out", "output"}

MTP = "mtp"
"""The family of the layers with which a model drafts for itself."""

PROJECTIONS = {
    "embedding": "embed_tokens embed_in embeddings embedding word_embeddings tok_embeddings wte wpe embed_positions",
    "attention_in": "q_proj k_proj v_proj qkv_proj query_key_value q_a_proj q_b_proj kv_a_proj_with_mqa kv_a_proj "
    "kv_b_proj c_attn Wqkv W_pack wqkv wq wk wv wq_b weights_proj query key value qkv sinks",
    "attention_out": "o_proj wo",
    "mlp_in": "gate_proj up_proj gate_up_proj dense_h_to_4h fc1 fc_in c_fc w1 w3 gate_up",
    "mlp_out": "down_proj dense_4h_to_h fc2 fc_out w2",
}
FAMILY_OF = {word: family for family, words in PROJECTIONS.items() for word in words.split()}
BY_PARENT = {"dense", "out_proj", "c_proj", "proj", "in_proj"}


def family(name: str, config: dict[str, Any] | None = None) -> str:
    """The family of the checkpoint tensor ``name``.

    ``config`` (the parsed config.json) decides one ambiguity: ``mixer`` is attention in a model that has no state-space
    keys, and from which layer on a model has those of multi-token prediction (``num_nextn_predict_layers``).
    """
    parts = name.split(".")
    leaf = parts[-1]
    if _drafts(parts, config or {}):
        return MTP
    words = parts[:-1] if leaf in ("weight", "qweight", "weight_packed") else parts
    if leaf in STATE:
        return "state_space"
    if SCALE.fullmatch(leaf):
        return "scale"
    if BIAS.fullmatch(leaf):
        return "bias"
    return _by_words(words, config) if words else "other"


def _drafts(parts: list[str], config: dict[str, Any]) -> bool:
    if any(part == "mtp" or part.startswith("mtp_") for part in parts):
        return True
    layers, more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    if not isinstance(layers, int) or not more or "layers" not in parts[:-1]:
        return False
    number = parts[parts.index("layers") + 1]
    return number.isdecimal() and int(number) >= layers


def _by_words(words: list[str], config: dict[str, Any] | None) -> str:
    last = words[-1]
    if any(NORM.fullmatch(word) for word in words[-3:] if not word.isdigit()):
        return "norm"
    if last in STATE_WORDS or (last in BY_PARENT and _in_state_space(words, config)):
        return "state_space"
    if is_router(words):
        return "router"
    return _expert(words) or _projection(words)


def _in_state_space(words: list[str], config: dict[str, Any] | None) -> bool:
    inside = STATE_PARENTS.intersection(words)
    if inside == {"mixer"} and config is not None:
        return any(STATE_CONFIG.fullmatch(key) for key in config)
    return bool(inside)


def is_router(words: list[str]) -> bool:
    """Whether the words of a tensor name, without its leaf, are those of a router."""
    if ROUTERS.intersection(words[-2:]):
        return True
    return words[-1] in ("gate", "wg") and len(words) > 1 and bool(ROUTER_PARENTS.fullmatch(words[-2]))


def _expert(words: list[str]) -> str | None:
    for position, word in enumerate(words):
        if word in SHARED:
            return "expert_shared"
        if word in EXPERTS:
            group = words[position + 1] if position + 1 < len(words) else ""
            return f"expert_{int(group)}" if group.isdecimal() and group.isascii() else "expert_fused"
    return "expert_fused" if FUSED.intersection(words) else None


def _projection(words: list[str]) -> str:
    last = words[-1]
    if last == "output":
        return "head" if len(words) <= 2 else "other"
    if last in HEADS or words[-2:] == ["shared_head", "head"]:
        return "head"
    if last in BY_PARENT:
        in_mlp = any(MLP_PARENTS.fullmatch(word) for word in words)
        side = "in" if last == "in_proj" else "out"
        return f"{'mlp' if in_mlp else 'attention'}_{side}"
    return FAMILY_OF.get(last, "other")


def families(manifest: Manifest, config: dict[str, Any] | None = None) -> dict[str, tuple[TensorEntry, ...]]:
    """The tensors of a manifest by family, each in canonical order; families without tensors are left out."""
    found: dict[str, list[TensorEntry]] = {}
    for entry in manifest.tensors:
        found.setdefault(family(entry.name, config), []).append(entry)
    return {name: tuple(entries) for name, entries in sorted(found.items())}
