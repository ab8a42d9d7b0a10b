"""Small random checkpoints of other architectures, for faults that a real vLLM has with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vst.checkpoint.writer import write_safetensors

HIDDEN, HEADS, KV, DIM, INTER, VOCAB, LAYERS, EXPERTS = 128, 4, 2, 32, 192, 320, 2, 4
Shapes = Mapping[str, tuple[int, ...]]


def bf16(seed: str, name: str, shape: tuple[int, ...]) -> bytes:
    """Reproducible bfloat16 values: about N(0, 0.15) for matrices, around 1 for vectors of norms, small for biases."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little"))
    values = rng.standard_normal(shape).astype(np.float32) * 0.15
    if len(shape) == 1 and "norm" in name:
        values += 1.0
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def attention(prefix: str, bias: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}.self_attn.q_proj.weight": (HEADS * DIM, HIDDEN),
        f"{prefix}.self_attn.k_proj.weight": (KV * DIM, HIDDEN),
        f"{prefix}.self_attn.v_proj.weight": (KV * DIM, HIDDEN),
        f"{prefix}.self_attn.o_proj.weight": (HIDDEN, HEADS * DIM),
        f"{prefix}.input_layernorm.weight": (HIDDEN,),
        f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
    }
    if bias:
        for part, size in (("q", HEADS), ("k", KV), ("v", KV)):
            shapes[f"{prefix}.self_attn.{part}_proj.bias"] = (size * DIM,)
    return shapes


def qwen2_tied() -> tuple[dict[str, object], Shapes]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= attention(prefix, bias=True)
        shapes[f"{prefix}.mlp.gate_proj.weight"] = shapes[f"{prefix}.mlp.up_proj.weight"] = (INTER, HIDDEN)
        shapes[f"{prefix}.mlp.down_proj.weight"] = (HIDDEN, INTER)
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True}, shapes


def mixtral() -> tuple[dict[str, object], Shapes]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= attention(prefix, bias=False)
        shapes[f"{prefix}.block_sparse_moe.gate.weight"] = (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            base = f"{prefix}.block_sparse_moe.experts.{expert}"
            shapes[f"{base}.w1.weight"] = shapes[f"{base}.w3.weight"] = (INTER, HIDDEN)
            shapes[f"{base}.w2.weight"] = (HIDDEN, INTER)
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "tie_word_embeddings": False}
    return {**config, "num_local_experts": EXPERTS, "num_experts_per_tok": 2}, shapes


def write_pair(directory: Path, config: dict[str, object], shapes: Shapes) -> tuple[Path, Path]:
    """Checkpoints A and B of one architecture under ``directory``."""
    base = {
        "hidden_size": HIDDEN,
        "intermediate_size": INTER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    paths = []
    for role in ("a", "b"):
        path = directory / role
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps({**base, **config}))
        tensors = {name: ("BF16", shape, bf16(role, name, shape)) for name, shape in shapes.items()}
        write_safetensors(path / "model.safetensors", tensors, {"format": "pt"})
        paths.append(path)
    return paths[0], paths[1]
