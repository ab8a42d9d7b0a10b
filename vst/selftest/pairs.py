"""Small pairs of checkpoints for faults that the embedded pair cannot have: experts to swap, scales to lose.

Made from SHAKE-256 of role and tensor name, so that they are the same wherever they are made.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vst.checkpoint.tiny import make_tiny_pair
from vst.checkpoint.writer import Tensor, write_safetensors

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, VOCAB, EXPERTS = 64, 96, 2, 4, 2, 259, 4
MATRIX_STD = 0.2
PAIRS = ("tiny", "experts", "scaled")
ROLES = ("a", "b")


def make_pair(name: str, cache: Path) -> tuple[Path, Path]:
    """The checkpoints A and B of a pair, made in ``cache`` when they are not there."""
    if name == "tiny":
        return make_tiny_pair(cache / "tiny")
    directory = cache / "selftest" / name
    for role in ROLES:
        if not (directory / role).is_dir():
            _install(directory, role, name)
    return directory / ROLES[0], directory / ROLES[1]


def _install(directory: Path, role: str, name: str) -> None:
    """Written beside its place and renamed: whoever comes at the same time finds it whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=directory, prefix=f".{role}-"))
    write_safetensors(scratch / "model.safetensors", dict(_tensors(name, role)), {"format": "pt"})
    (scratch / "config.json").write_text(json.dumps(_config(name), indent=1, sort_keys=True))
    try:
        os.rename(scratch, directory / role)
    except OSError:
        if not (directory / role).is_dir():
            raise


def _config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    if name == "experts":
        kind = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
        return {**config, **kind, "num_local_experts": EXPERTS, "num_experts_per_tok": 2}
    quantised = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    return {**config, **llama, "quantization_config": quantised}


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    """The tensors of a pair without the scales."""
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    found["lm_head.weight"] = (VOCAB, HIDDEN)
    kv = KV_HEADS * HIDDEN // HEADS
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{base}{norm}.weight"] = (HIDDEN,)
        for part, rows in (("q", HIDDEN), ("k", kv), ("v", kv), ("o", HIDDEN)):
            found[f"{base}self_attn.{part}_proj.weight"] = (rows, HIDDEN)
        found |= _experts(base) if name == "experts" else _dense(base + "mlp.", ("gate_proj", "up_proj", "down_proj"))
    return found


def _dense(base: str, names: tuple[str, str, str]) -> dict[str, tuple[int, ...]]:
    gate, up, down = (f"{base}{name}.weight" for name in names)
    return {gate: (INTERMEDIATE, HIDDEN), up: (INTERMEDIATE, HIDDEN), down: (HIDDEN, INTERMEDIATE)}


def _experts(base: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {f"{base}block_sparse_moe.gate.weight": (EXPERTS, HIDDEN)}
    for expert in range(EXPERTS):
        found |= _dense(f"{base}block_sparse_moe.experts.{expert}.", ("w1", "w3", "w2"))
    return found


def _tensors(name: str, role: str) -> Mapping[str, Tensor]:
    made: dict[str, Tensor] = {}
    for tensor, shape in shapes(name).items():
        quantised = name == "scaled" and len(shape) == 2 and "_proj" in tensor
        if quantised:
            made[tensor] = ("F8_E4M3", shape, _float8(role, tensor, shape))
            made[f"{tensor}_scale"] = ("F32", (), _scale(role, tensor))
        else:
            made[tensor] = ("BF16", shape, _bfloat16(role, tensor, shape))
    return made


def _unit(role: str, tensor: str, count: int) -> Any:
    """Values between -1 and 1, evenly spread."""
    import numpy as np

    raw = hashlib.shake_256(f"vst-selftest-{role}/{tensor}".encode()).digest(2 * count)
    return (np.frombuffer(raw, "<u2").astype(np.float32) - np.float32(32767.5)) / np.float32(32768)


def _bfloat16(role: str, tensor: str, shape: tuple[int, ...]) -> bytes:
    import numpy as np

    norm = len(shape) == 1
    scale = np.float32(0.2 if norm else MATRIX_STD * math.sqrt(3))
    values = _unit(role, tensor, math.prod(shape)) * scale + np.float32(1 if norm else 0)
    return bytes((values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes())


def _float8(role: str, tensor: str, shape: tuple[int, ...]) -> bytes:
    """Signs and exponents up to 2, so that no byte is a NaN."""
    import numpy as np

    raw = hashlib.shake_256(f"vst-selftest-{role}/{tensor}".encode()).digest(math.prod(shape))
    codes = np.frombuffer(raw, "u1")
    return bytes(((codes & 0x80) | (codes % 0x40)).astype("u1").tobytes())


def _scale(role: str, tensor: str) -> bytes:
    """Scales that differ from tensor to tensor and from A to B, of the size that the weights need."""
    import numpy as np

    value = 0.2 + 0.1 * float(_unit(role, f"{tensor}_scale", 1)[0])
    return bytes(np.array(value, "<f4").tobytes())
