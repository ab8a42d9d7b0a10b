"""A real server that drafts with layers of its own model (``transfer.mtp=true``): the same checkpoint, pushed twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from e2e.checkpoints import HIDDEN, Shapes, bf16, qwen2_tied, write_pair
from e2e.conftest import Run, Vst
from vst.checkpoint.writer import write_safetensors

SPECULATION = """'{"method":"mtp","num_speculative_tokens":1}'"""
LAYER = "model.mtp_layers.0"


def mimo() -> tuple[dict[str, object], Shapes]:
    """A dense model with one layer that predicts the token after the next (MiMo: Qwen2 and such a layer)."""
    config, shapes = qwen2_tied()
    block = {name.replace("model.layers.0", LAYER): shape for name, shape in shapes.items() if "layers.0." in name}
    norms = {f"{LAYER}.{name}_layernorm.weight": (HIDDEN,) for name in ("token", "hidden", "final")}
    more = {f"{LAYER}.input_proj.weight": (HIDDEN, 2 * HIDDEN), "lm_head.weight": shapes["model.embed_tokens.weight"]}
    changes = {"architectures": ["MiMoForCausalLM"], "tie_word_embeddings": False, "num_nextn_predict_layers": 1}
    return {**config, **changes}, {**shapes, **block, **norms, **more}


def values(role: str, name: str, shape: tuple[int, ...]) -> bytes:
    """Of a model whose last token decides nearly alone, so that a layer can guess what comes: B's does so."""
    raw = np.frombuffer(bf16(role, name, shape), np.uint16).astype(np.uint32) << 16
    found = raw.view(np.float32).reshape(shape).copy()
    found *= next((scale for part, scale in SCALES.items() if part in name), 1.0)
    if "input_proj" in name and role == "b":
        found *= 0.02
        found[:, HIDDEN:] += np.eye(HIDDEN, dtype=np.float32)
    return ((found.view(np.uint32) + 0x8000) >> 16).astype(np.uint16).tobytes()


SCALES = {"o_proj": 0.05, "down_proj": 0.05, "embed_tokens": 6.0, "lm_head": 3.0}


@pytest.fixture(scope="module")
def mtp_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    config, shapes = mimo()
    pair = write_pair(tmp_path_factory.mktemp("mtp"), config, shapes)
    for path in pair:
        tensors = {name: ("BF16", shape, values(path.name, name, shape)) for name, shape in shapes.items()}
        write_safetensors(path / "model.safetensors", tensors, {"format": "pt"})
    return pair


@pytest.fixture(scope="module")
def drafted(vst: Vst, mtp_pair: tuple[Path, Path]) -> Iterator[Run]:
    a, b = mtp_pair
    server = f"server.args=[--enforce-eager,--skip-tokenizer-init,--speculative-config,{SPECULATION}]"
    paths = ("model=local", f"model.path='{a}'", f"checkpoint.path='{b}'")
    yield vst("lane=L3", "lane.cycles=1", "transfer.mtp=true", server, *paths, timeout=900)


def test_a_model_and_the_layers_that_draft_for_it_go_to_b_and_back(drafted: Run) -> None:
    assert drafted.code == 0, drafted.out
    assert drafted.verdict["covered"]["tensor_share"] == 1.0
    starts = [path for path in drafted.posts() if "start" in path]
    assert starts == ["/start_weight_update", "/start_draft_weight_update"] * (len(starts) // 2)


def test_a_stale_layer_is_seen_by_what_is_accepted_of_its_drafts(drafted: Run) -> None:
    seen = drafted.check("draft.acceptance")["observed"]
    assert seen["method"] == "mtp" and all(one["found"] == one["expected"] for one in seen["arrivals"])
    assert seen["stale"]["rate"] < 0.1 < 0.3 < seen["arrivals"][0]["found"]["rate"]
    control = drafted.check("control.mtp")
    assert control["outcome"] == "pass" and control["observed"]["differing"] == 0
    assert control["observed"]["drafted"]["found"] == seen["stale"]


def test_what_the_layer_shares_with_its_model_is_observed_by_its_own_control(drafted: Run) -> None:
    """vLLM gives the layer the embedding and the head of the model: a whole B for the draft would undo the control."""
    assert [drafted.check(f"control.{name}")["outcome"] for name in ("embedding", "head")] == ["pass", "pass"]
    files = [path for path in drafted.dir.glob("weight-update-*.json") if ".meta" not in path.name]
    updates = {one["purpose"]: one for one in map(json.loads, (path.read_text() for path in files))}
    assert updates["control.embedding.draft"]["from_other"]["tensors"] == ["model.embed_tokens.weight"]
    assert updates["control.embedding.draft"]["server"]["holds"] == "checkpoint with 1 tensors of model"
