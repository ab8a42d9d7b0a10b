from __future__ import annotations

import pytest

from vst.lanes.diagnose.parts import families_of, holding, kinds, modules, suspects, tensors

MIXTRAL = [
    "lm_head.weight",
    "model.embed_tokens.weight",
    *(f"model.layers.{n}.self_attn.{p}_proj.weight" for n in (0, 1) for p in "qkvo"),
    *(f"model.layers.{n}.block_sparse_moe.gate.weight" for n in (0, 1)),
    *(f"model.layers.{n}.block_sparse_moe.experts.{e}.w{w}.weight" for n in (0, 1) for e in (0, 1) for w in (1, 2, 3)),
    *(f"model.layers.{n}.input_layernorm.weight" for n in (0, 1)),
    "model.norm.weight",
]


def test_kinds_are_the_same_tensor_of_every_layer_and_expert() -> None:
    found = kinds(MIXTRAL)
    assert found["model.layers.*.self_attn.q_proj.weight"] == (
        "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight",
    )  # fmt: skip
    assert len(found["model.layers.*.block_sparse_moe.experts.*.w1.weight"]) == 4
    assert sorted(name for each in found.values() for name in each) == sorted(MIXTRAL)


def test_modules_hold_together_what_a_server_fills_as_one() -> None:
    found = modules(MIXTRAL)
    assert set(found) == {
        "lm_head", "model.embed_tokens", "model.norm", "model.layers.*.self_attn", "model.layers.*.input_layernorm",
        "model.layers.*.block_sparse_moe experts", "model.layers.*.block_sparse_moe router",
    }  # fmt: skip
    assert len(found["model.layers.*.block_sparse_moe experts"]) == 12
    assert len(found["model.layers.*.self_attn"]) == 8


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("model.layers.0.mlp.experts.gate_up_proj_bias", "model.layers.*.mlp experts"),
        ("model.layers.0.mlp.router.bias", "model.layers.*.mlp router"),
        ("model.layers.0.mlp.gate.e_score_correction_bias", "model.layers.*.mlp router"),
        ("model.layers.0.mlp.shared_experts.up_proj.weight", "model.layers.*.mlp shared experts"),
        ("model.layers.0.block_sparse_moe.input_linear.weight", "model.layers.*.block_sparse_moe experts"),
        ("model.layers.0.mlp.gate_proj.weight", "model.layers.*.mlp"),
        ("backbone.layers.3.mixer.A_log", "backbone.layers.*.mixer"),
    ],
)
def test_experts_routers_and_shared_experts_are_modules_of_their_own(name: str, module: str) -> None:
    assert list(modules([name])) == [module]


def test_suspects_are_the_tied_head_the_experts_and_the_state_space() -> None:
    tied = ["model.embed_tokens.weight", "model.norm.weight"]
    assert suspects(tied, {"tie_word_embeddings": True}) == {"tied head": ("model.embed_tokens.weight",)}
    assert suspects(tied, {"tie_word_embeddings": False}) == {}
    assert suspects([*tied, "lm_head.weight"], {"tie_word_embeddings": True}) == {}
    assert len(suspects(MIXTRAL, {})["experts"]) == 12
    assert suspects(["backbone.layers.0.mixer.A_log"], {"state_size": 16}) == {
        "state space": ("backbone.layers.0.mixer.A_log",)
    }


def test_parts_are_chosen_by_what_they_hold() -> None:
    found = families_of(MIXTRAL, {})
    assert holding(found, ["model.norm.weight", "lm_head.weight"]) == ["head", "norm"]
    assert tensors(found, ["head", "embedding"]) == ("lm_head.weight", "model.embed_tokens.weight")
