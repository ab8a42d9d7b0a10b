"""The architectures of the zoo: for each the config class of transformers and what makes the model tiny. Data only.

Sizes are the smallest that vLLM's CPU kernels take, and every model can be cut in two for two workers: even numbers of
heads, groups and experts. What is left out is the default of the config class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vst.checkpoint.tiny_tokenizer import BOS_ID, EOS_ID, PAD_ID, VOCAB_SIZE

PREFIX = "zoo/"
"""What the name of an architecture is preceded by in ``model=`` and ``model.generate``."""

COMMON: Mapping[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
    "tie_word_embeddings": False,
    "hidden_size": 128,
    "num_hidden_layers": 2,
}
ATTENTION: Mapping[str, Any] = {
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
HEAD: Mapping[str, Any] = {"head_dim": 32}
MAMBA: Mapping[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    # vLLM 0.32 on a CPU dies cold at the first prompt that is longer than a chunk.
    "mamba_chunk_size": 256,
}
DEEPSEEK: Mapping[str, Any] = {
    # The MLA kernel of the CPU is compiled for the sizes of the published models.
    "kv_lora_rank": 512,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_group": 1,
    "topk_group": 1,
}


@dataclass(frozen=True)
class Architecture:
    """One entry: ``config`` is the name of a class of transformers, ``options`` its arguments beside ``COMMON``.

    ``quantised`` is how the linear layers are stored: None, ``int8``, ``awq`` or ``gptq``. ``traits`` say what is
    special about it: ``tied``, ``experts``, ``state_space``, ``mla``.
    """

    name: str
    config: str
    options: Mapping[str, Any]
    quantised: str | None = None
    traits: tuple[str, ...] = ()


def _all() -> tuple[Architecture, ...]:
    dense = {**ATTENTION}
    long = {**ATTENTION, **HEAD}
    return (
        Architecture("llama", "LlamaConfig", dense),
        Architecture("llama-tied", "LlamaConfig", {**dense, "tie_word_embeddings": True}, traits=("tied",)),
        Architecture("qwen2-tied", "Qwen2Config", {**dense, "tie_word_embeddings": True}, traits=("tied",)),
        Architecture("qwen3", "Qwen3Config", long),
        Architecture("qwen3-moe", "Qwen3MoeConfig", {
            **long, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        }, traits=("experts",)),  # fmt: skip
        Architecture("mistral", "MistralConfig", {**dense, "sliding_window": None}),
        Architecture("mixtral", "MixtralConfig", {
            **dense, "num_local_experts": 4, "num_experts_per_tok": 2,
        }, traits=("experts",)),  # fmt: skip
        Architecture("gemma2", "Gemma2Config", {
            **long, "query_pre_attn_scalar": 32, "tie_word_embeddings": True,
        }, traits=("tied",)),  # fmt: skip
        Architecture("gemma3", "Gemma3TextConfig", {
            **long, "query_pre_attn_scalar": 32, "tie_word_embeddings": True,
        }, traits=("tied",)),  # fmt: skip
        Architecture("phi3", "Phi3Config", dense),
        Architecture("olmo2", "Olmo2Config", dense),
        Architecture("granite", "GraniteConfig", {
            **dense, "embedding_multiplier": 2.0, "logits_scaling": 2.0, "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
        }),  # fmt: skip
        Architecture("granite-hybrid", "GraniteMoeHybridConfig", {
            **dense, **MAMBA, "layer_types": ["mamba", "attention"], "num_local_experts": 4,
            "num_experts_per_tok": 2, "shared_intermediate_size": 64, "position_embedding_type": "rope",
        }, traits=("experts", "state_space")),  # fmt: skip
        Architecture("gpt-oss", "GptOssConfig", {
            **long, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64,
        }, traits=("experts",)),  # fmt: skip
        Architecture("deepseek-v2", "DeepseekV2Config", {**dense, **DEEPSEEK}, traits=("experts", "mla")),
        Architecture("deepseek-v3", "DeepseekV3Config", {
            **dense, **DEEPSEEK, "num_nextn_predict_layers": 0, "topk_method": "noaux_tc",
        }, traits=("experts", "mla")),  # fmt: skip
        Architecture("glm4", "Glm4Config", long),
        Architecture("falcon-h1", "FalconH1Config", {
            **dense, **MAMBA, "mamba_d_ssm": 256, "mamba_rms_norm": True,
        }, traits=("state_space",)),  # fmt: skip
        Architecture("bamba", "BambaConfig", {**dense, **MAMBA, "attn_layer_indices": [1]}, traits=("state_space",)),
        Architecture("mamba2", "Mamba2Config", {
            "num_heads": 8, "head_dim": 32, "state_size": 16, "expand": 2, "n_groups": 2, "chunk_size": 64,
        }, traits=("state_space",)),  # fmt: skip
        Architecture("nemotron-h", "NemotronHConfig", {
            **long, "layers_block_type": ["linear_attention", "full_attention", "mlp"], "mamba_num_heads": 8,
            "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2, "chunk_size": 256, "use_mamba_kernels": False,
        }, traits=("state_space",)),  # fmt: skip
        Architecture("stablelm", "StableLmConfig", dense),
        Architecture("gpt-neox", "GPTNeoXConfig", {
            "intermediate_size": 192, "num_attention_heads": 4, "max_position_embeddings": 512,
        }),  # fmt: skip
        Architecture("olmoe", "OlmoeConfig", {
            **dense, "num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64,
        }, traits=("experts",)),  # fmt: skip
        Architecture("llama-int8", "LlamaConfig", dense, quantised="int8"),
        Architecture("llama-awq", "LlamaConfig", dense, quantised="awq"),
        Architecture("llama-gptq", "LlamaConfig", dense, quantised="gptq"),
    )


CATALOGUE: Mapping[str, Architecture] = {one.name: one for one in _all()}
"""Every architecture by name, in the order of the published matrix."""
