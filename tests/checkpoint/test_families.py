from __future__ import annotations

from pathlib import Path

import pytest

from vst.checkpoint.families import families, family
from vst.checkpoint.manifest import read_manifest

NAMES = {
    "embedding": """model.embed_tokens.weight gpt_neox.embed_in.weight backbone.embeddings.weight
        model.language_model.embed_tokens.weight transformer.wte.weight backbone.embedding.weight""",
    "head": """lm_head.weight embed_out.weight output.weight language_model.lm_head.weight
        model.layers.61.shared_head.head.weight""",
    "norm": """model.norm.weight model.layers.0.input_layernorm.weight model.layers.0.self_attn.q_norm.weight
        model.layers.0.self_attn.k_norm.weight model.layers.3.post_feedforward_layernorm.weight
        gpt_neox.final_layer_norm.weight model.layers.0.self_attn.q_a_layernorm.weight
        model.layers.0.self_attn.kv_a_layernorm.weight model.layers.0.self_attn.q_layernorm.norms.3.weight
        model.layers.0.mamba.norm.weight backbone.layers.0.mixer.norm.weight backbone.norm_f.weight
        backbone.layers.0.norm.weight model.layers.0.pre_ff_layernorm.weight model.layers.61.enorm.weight
        transformer.h.0.ln_1.weight transformer.ln_f.weight model.layers.61.shared_head.norm.weight""",
    "attention_in": """model.layers.0.self_attn.q_proj.weight model.layers.0.self_attn.k_proj.weight
        model.layers.0.self_attn.v_proj.weight model.layers.0.self_attn.qkv_proj.weight
        gpt_neox.layers.0.attention.query_key_value.weight model.layers.0.self_attn.q_a_proj.weight
        model.layers.0.self_attn.q_b_proj.weight model.layers.0.self_attn.kv_a_proj_with_mqa.weight
        model.layers.0.self_attn.kv_b_proj.weight backbone.layers.4.mixer.q_proj.weight
        model.layers.0.self_attn.q_proj.qweight model.layers.0.self_attn.sinks""",
    "attention_out": """model.layers.0.self_attn.o_proj.weight gpt_neox.layers.0.attention.dense.weight
        backbone.layers.4.mixer.o_proj.weight transformer.h.0.attn.c_proj.weight
        model.decoder.layers.0.self_attn.out_proj.weight""",
    "mlp_in": """model.layers.0.mlp.gate_proj.weight model.layers.0.mlp.up_proj.weight
        model.layers.0.mlp.gate_up_proj.weight gpt_neox.layers.0.mlp.dense_h_to_4h.weight
        model.layers.0.feed_forward.gate_proj.weight backbone.layers.1.mixer.up_proj.weight""",
    "mlp_out": """model.layers.0.mlp.down_proj.weight gpt_neox.layers.0.mlp.dense_4h_to_h.weight
        model.layers.0.feed_forward.down_proj.weight backbone.layers.1.mixer.down_proj.weight
        transformer.h.0.mlp.c_proj.weight""",
    "router": """model.layers.0.block_sparse_moe.gate.weight model.layers.0.mlp.gate.weight
        model.layers.0.mlp.router.weight model.layers.0.mlp.shared_expert_gate.weight
        model.layers.0.block_sparse_moe.router.layer.weight backbone.layers.1.mixer.gate.weight""",
    "expert_7": """model.layers.0.block_sparse_moe.experts.7.w1.weight model.layers.5.mlp.experts.7.down_proj.weight
        model.layers.0.mlp.experts.7.gate_proj.qweight backbone.layers.1.mixer.experts.7.up_proj.weight""",
    "expert_12": "model.layers.0.mlp.experts.12.up_proj.weight",
    "expert_shared": """model.layers.1.mlp.shared_experts.gate_proj.weight
        model.layers.1.mlp.shared_expert.down_proj.weight""",
    "expert_fused": """model.layers.0.mlp.experts.gate_up_proj model.layers.0.mlp.experts.down_proj
        model.layers.0.mlp.experts.gate_up_proj_blocks model.layers.0.block_sparse_moe.input_linear.weight""",
    "state_space": """backbone.layers.0.mixer.A_log backbone.layers.0.mixer.D backbone.layers.0.mixer.dt_bias
        backbone.layers.0.mixer.conv1d.weight backbone.layers.0.mixer.in_proj.weight
        backbone.layers.0.mixer.out_proj.weight model.layers.0.mamba.in_proj.weight model.layers.0.mamba.out_proj.weight
        model.layers.0.mamba.A_log model.layers.0.linear_attn.in_proj_qkvz.weight
        model.layers.0.mamba.x_proj.weight""",
    "scale": """model.layers.0.mlp.up_proj.weight_scale model.layers.0.mlp.up_proj.weight_scale_inv
        model.layers.0.mlp.up_proj.input_scale model.layers.0.self_attn.k_scale model.layers.0.self_attn.q_proj.qzeros
        model.layers.0.self_attn.q_proj.g_idx model.layers.0.self_attn.q_proj.scales
        model.layers.0.mlp.experts.gate_up_proj_scales model.layers.0.mlp.experts.3.w1.weight_scale
        model.layers.0.mlp.up_proj.weight_scale_2 model.layers.0.mlp.up_proj.weight_zero_point""",
    "bias": """model.layers.0.self_attn.q_proj.bias gpt_neox.final_layer_norm.bias
        model.layers.0.mlp.gate.e_score_correction_bias model.layers.0.mlp.experts.down_proj_bias
        model.layers.0.mlp.router.bias model.layers.0.mamba.conv1d.bias lm_head.bias""",
    "mtp": """model.mtp_layers.0.input_proj.weight model.mtp_layers.0.self_attn.q_proj.bias mtp.fc.weight
        mtp.layers.0.mlp.experts.3.up_proj.weight model.mtp_emb_norm.0.weight model.mtp.layers.0.eh_proj.weight""",
    "other": "gpt_neox.layers.0.attention.rotary_emb.inv_freq model.layers.61.eh_proj.weight weight x",
}
CASES = [(name, expected) for expected, names in NAMES.items() for name in names.split()]


@pytest.mark.parametrize(("name", "expected"), CASES)
def test_names_of_published_models_have_their_family(name: str, expected: str) -> None:
    assert family(name) == expected


def test_layers_beyond_the_models_own_are_those_that_draft() -> None:
    config = {"num_hidden_layers": 61, "num_nextn_predict_layers": 1}
    assert family("model.layers.61.eh_proj.weight", config) == "mtp"
    assert family("model.layers.61.mlp.gate.weight", config) == "mtp"
    assert family("model.layers.60.mlp.gate.weight", config) == "router"
    assert family("model.layers.61.mlp.gate.weight", {**config, "num_nextn_predict_layers": 0}) == "router"


def test_mixer_is_attention_in_a_model_without_state_space() -> None:
    name = "transformer.h.0.mixer.out_proj.weight"
    assert family(name, {"model_type": "phi-msft", "n_head": 32}) == "attention_out"
    assert family(name, {"model_type": "nemotron_h", "mamba_num_heads": 8}) == "state_space"
    assert family(name) == "state_space"


def test_awkward_names_do_not_crash() -> None:
    for name in ("", ".", "...", "experts", "experts.", "experts.x.weight", "gate", "weight.weight", "é.²"):
        assert family(name)


def test_families_partition_the_manifest(pristine: tuple[Path, Path]) -> None:
    manifest = read_manifest(pristine[0])
    found = families(manifest)
    assert sum(map(len, found.values())) == len(manifest.tensors)
    assert {name: len(entries) for name, entries in found.items()} == {
        "attention_in": 9,
        "attention_out": 3,
        "embedding": 1,
        "head": 1,
        "mlp_in": 6,
        "mlp_out": 3,
        "norm": 7,
    }
