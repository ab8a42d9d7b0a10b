"""Quantised forms of the linear layers: the names, dtypes and shapes in which they are stored, and what config.json
says of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vst.checkpoint.zoo.weights import draw, draw_integers

GROUP = 32
"""How many input features share a scale where there are groups."""

Stored = tuple[str, tuple[int, ...], bytes]
"""dtype, shape, bytes."""

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "int8": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False,
                },
                "input_activations": {
                    "num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True,
                },
            },
        },
    },
    "awq": {
        "quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm",
    },
    "gptq": {
        "quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False,
        "checkpoint_format": "gptq",
    },
}  # fmt: skip
"""``quantization_config`` of config.json by form."""


def is_quantised(name: str, shape: Sequence[int]) -> bool:
    """Whether a tensor of the plain model is stored in another form: the matrices inside of the layers."""
    return len(shape) == 2 and ".layers." in name and name.endswith(".weight")


def stored(form: str, seed: str, name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, Stored]]:
    """The tensors that stand for the linear weight ``name`` of ``shape`` (output features, input features)."""
    base, (out, features) = name.removesuffix("weight"), shape
    groups = features // GROUP
    if form == "int8":
        yield name, ("I8", shape, draw_integers(seed, name, "I8", shape))
        yield f"{base}weight_scale", _numbers(seed, f"{base}weight_scale", "F32", (out, 1))
        return
    packed = (features, out // 8) if form == "awq" else (features // 8, out)
    yield f"{base}qweight", ("I32", packed, draw_integers(seed, f"{base}qweight", "I32", packed))
    yield f"{base}scales", _numbers(seed, f"{base}scales", "F16", (groups, out))
    zeros = (groups, out // 8)
    if form == "awq":
        yield f"{base}qzeros", ("I32", zeros, draw_integers(seed, f"{base}qzeros", "I32", zeros))
        return
    # A symmetric GPTQ checkpoint stores the middle, less one, and which group a feature belongs to.
    yield f"{base}qzeros", ("I32", zeros, b"\x77" * (4 * groups * (out // 8)))
    order = b"".join((feature // GROUP).to_bytes(4, "little") for feature in range(features))
    yield f"{base}g_idx", ("I32", (features,), order)


def _numbers(seed: str, name: str, dtype: str, shape: tuple[int, ...]) -> Stored:
    return dtype, shape, draw(seed, name, dtype, shape, 1.0)
