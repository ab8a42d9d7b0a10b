"""The double's model computes what the checkpoint says: held to the transformers library, and to itself in pieces."""

from __future__ import annotations

from pathlib import Path

import torch

from vst.selftest.checkpoint import load
from vst.selftest.decoder import FREQUENCIES, derive, forward, frequencies
from vst.selftest.pairs import make_pair

PROMPT = [7, 250, 3, 3, 99, 180, 42, 11]


def weights(path: Path) -> tuple[dict[str, torch.Tensor], object]:
    checkpoint = load(path)
    found = derive(checkpoint.tensors)
    found[FREQUENCIES] = frequencies(checkpoint.shape)
    return found, checkpoint.shape


def test_logits_are_those_of_transformers(a: Path) -> None:
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(a, dtype=torch.float64)(torch.tensor([PROMPT])).logits[0]
    held, shape = weights(a)
    ours, _ = forward(held, shape, PROMPT, ())
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_logits_of_experts_are_those_of_transformers(checkpoints: Path) -> None:
    from transformers import AutoModelForCausalLM

    path = make_pair("experts", checkpoints)[0]
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)(torch.tensor([PROMPT])).logits[0]
    held, shape = weights(path)
    ours, _ = forward(held, shape, PROMPT, ())
    assert torch.allclose(ours, theirs.to(torch.float64), atol=1e-3)


def test_an_answer_does_not_depend_on_how_its_tokens_were_cut(a: Path) -> None:
    held, shape = weights(a)
    whole, _ = forward(held, shape, PROMPT, ())
    first, past = forward(held, shape, PROMPT[:3], ())
    rest, _ = forward(held, shape, PROMPT[3:], past)
    pieces = torch.cat((first, rest)).log_softmax(-1).to(torch.float32)
    assert torch.equal(pieces, whole.log_softmax(-1).to(torch.float32))


def test_a_scale_multiplies_its_weight(checkpoints: Path) -> None:
    checkpoint = load(make_pair("scaled", checkpoints)[0])
    name = "model.layers.0.mlp.up_proj.weight"
    held = derive(checkpoint.tensors)
    scale = float(checkpoint.tensors[f"{name}_scale"])
    assert checkpoint.tensors[name].dtype == torch.float8_e4m3fn
    assert torch.allclose(held[name], checkpoint.tensors[name].to(torch.float64) * scale)
    assert f"{name}_scale" not in held
