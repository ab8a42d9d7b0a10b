"""The double's model: a decoder of the Llama kind, dense or with experts, in double precision on the CPU.

Double precision makes an answer independent of how its tokens were cut into steps: what is left of rounding vanishes
when log-probabilities are rounded to single precision. Pure functions over tensors that somebody else holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Past = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of each layer, both of shape (kv heads, tokens, head dimension)."""

SCALE = "_scale"
FREQUENCIES = "rotary.inv_freq"
"""A buffer that no checkpoint holds: made from the configuration when the server starts."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, from its ``config.json``."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    epsilon: float
    theta: float
    tied: bool
    experts: int
    chosen: int

    @staticmethod
    def of(config: Mapping[str, Any]) -> Shape:
        heads = int(config["num_attention_heads"])
        return Shape(
            hidden=int(config["hidden_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads", heads)),
            vocab=int(config["vocab_size"]),
            epsilon=float(config.get("rms_norm_eps", 1e-5)),
            theta=float(config.get("rope_theta", 10000.0)),
            tied=bool(config.get("tie_word_embeddings", False)),
            experts=int(config.get("num_local_experts", 0)),
            chosen=int(config.get("num_experts_per_tok", 0)),
        )

    @property
    def head(self) -> int:
        return self.hidden // self.heads


def frequencies(shape: Shape) -> Tensor:
    """The rotary frequencies, of half a head's length."""
    return shape.theta ** (-torch.arange(0, shape.head, 2, dtype=torch.float64) / shape.head)


def derive(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the forward pass reads: every parameter in double precision, with its scale applied."""
    return {
        name: value.to(torch.float64) * params[name + SCALE].to(torch.float64)
        if name + SCALE in params
        else value.to(torch.float64)
        for name, value in params.items()
        if not name.endswith(SCALE)
    }


def forward(weights: Mapping[str, Tensor], shape: Shape, tokens: Sequence[int], past: Past) -> tuple[Tensor, Past]:
    """The logits of every given token (tokens, vocabulary) and the keys and values with theirs added."""
    x = weights["model.embed_tokens.weight"][torch.tensor(list(tokens))]
    begin = past[0][0].shape[1] if past else 0
    turns = _turns(weights[FREQUENCIES], begin, len(tokens))
    grown = []
    for layer in range(shape.layers):
        base = f"model.layers.{layer}."
        normed = _norm(x, weights[base + "input_layernorm.weight"], shape.epsilon)
        mixed, kept = _attention(weights, base + "self_attn.", shape, normed, turns, past[layer] if past else None)
        x = x + mixed
        x = x + _mlp(weights, base, shape, _norm(x, weights[base + "post_attention_layernorm.weight"], shape.epsilon))
        grown.append(kept)
    x = _norm(x, weights["model.norm.weight"], shape.epsilon)
    head = weights["model.embed_tokens.weight" if shape.tied else "lm_head.weight"]
    return x @ head.T, tuple(grown)


def _norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def _turns(inv_freq: Tensor, begin: int, count: int) -> tuple[Tensor, Tensor]:
    angles = torch.arange(begin, begin + count, dtype=torch.float64)[:, None] * inv_freq[None]
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def _turn(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    half = x.shape[-1] // 2
    return x * turns[0] + torch.cat((-x[..., half:], x[..., :half]), -1) * turns[1]


def _linear(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    out = x @ weights[name + ".weight"].T
    return out + weights[name + ".bias"] if name + ".bias" in weights else out


def _attention(
    weights: Mapping[str, Tensor],
    base: str,
    shape: Shape,
    x: Tensor,
    turns: tuple[Tensor, Tensor],
    past: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    count = x.shape[0]
    q, k, v = (
        _linear(weights, base + f"{part}_proj", x).view(count, -1, shape.head).transpose(0, 1) for part in "qkv"
    )
    q, k = _turn(q, turns), _turn(k, turns)
    if past is not None:
        k, v = torch.cat((past[0], k), 1), torch.cat((past[1], v), 1)
    repeat = shape.heads // shape.kv_heads
    scores = q @ k.repeat_interleave(repeat, 0).transpose(1, 2) / shape.head**0.5
    seen = torch.ones(count, k.shape[1], dtype=torch.bool).tril(k.shape[1] - count)
    scores = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    mixed = (scores @ v.repeat_interleave(repeat, 0)).transpose(0, 1).reshape(count, -1)
    return _linear(weights, base + "o_proj", mixed), (k, v)


def _mlp(weights: Mapping[str, Tensor], base: str, shape: Shape, x: Tensor) -> Tensor:
    if not shape.experts:
        return _gated(weights, [base + f"mlp.{part}_proj" for part in ("gate", "up", "down")], x)
    moe = base + "block_sparse_moe."
    likely, chosen = _linear(weights, moe + "gate", x).softmax(-1).topk(shape.chosen)
    share = torch.zeros(x.shape[0], shape.experts, dtype=x.dtype).scatter(1, chosen, likely / likely.sum(-1, True))
    parts = [
        share[:, expert, None] * _gated(weights, [moe + f"experts.{expert}.{part}" for part in ("w1", "w3", "w2")], x)
        for expert in range(shape.experts)
    ]
    return torch.stack(parts).sum(0)


def _gated(weights: Mapping[str, Tensor], names: list[str], x: Tensor) -> Tensor:
    gate, up, down = names
    return _linear(weights, down, torch.nn.functional.silu(_linear(weights, gate, x)) * _linear(weights, up, x))
