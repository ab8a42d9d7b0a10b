"""A deterministic pair of tiny checkpoints: an untied Llama of half a million parameters, in every tensor different.

The weights come from SHAKE-256 of seed and tensor name and from IEEE single-precision arithmetic, so that the bytes are
the same on every machine and with every numpy. ``TREE_DIGESTS`` pins them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vst.checkpoint.companion_files import digest_file
from vst.checkpoint.tiny_tokenizer import BOS_ID, EOS_ID, VOCAB_SIZE, tokenizer_files
from vst.checkpoint.writer import Tensor, write_index, write_safetensors
from vst.errors import TransportError, VerificationError

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS = 128, 192, 3, 4, 2
MATRIX_STD = 0.15
NORM_SPREAD = 0.2
SEEDS = {"a": "vst-tiny-a", "b": "vst-tiny-b"}
TREE_DIGESTS = {
    "a": "sha256:7bacb2de28877800e8e92c0823372b0c4f33e718180c24cce8d811fda76820f9",
    "b": "sha256:80f048fd2de4f0a5a5f08c897605ebeeb5908f630c78f01aa0bab484cb1c5c95",
}
"""``tree_digest`` of both directories."""

LOCK_SECONDS = 60.0

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "head_dim": HIDDEN // HEADS,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": MATRIX_STD,
    "intermediate_size": INTERMEDIATE,
    "max_position_embeddings": 512,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCAB_SIZE,
}
GENERATION_CONFIG = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID}


def make_tiny_pair(directory: Path) -> tuple[Path, Path]:
    """The directories ``a`` and ``b`` below ``directory``, built if they are not there complete and undamaged.

    Safe for concurrent callers. Raises ``TransportError`` if another one holds the lock for a minute,
    ``VerificationError`` if this machine builds other bytes than the pinned ones.
    """
    directory.mkdir(parents=True, exist_ok=True)
    targets = {role: directory / role for role in SEEDS}
    if not all(map(_complete, targets, targets.values())):
        with locked(directory / ".lock"):
            for role, target in targets.items():
                if not _complete(role, target):
                    _install(role, target)
    return targets["a"], targets["b"]


def _complete(role: str, target: Path) -> bool:
    return target.is_dir() and tree_digest(target) == TREE_DIGESTS[role]


def tree_digest(directory: Path) -> str:
    """``sha256:<hex>`` over the sorted lines ``<file digest> <name>`` of all entries; a subdirectory never matches."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        content = digest_file(path) if path.is_file() else "none"
        digest.update(f"{content} {path.name}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _install(role: str, target: Path) -> None:
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{role}-"))
    try:
        fresh = scratch / "new"
        write_tiny(fresh, SEEDS[role])
        found = tree_digest(fresh)
        if found != TREE_DIGESTS[role]:
            raise VerificationError(f"tiny checkpoint {role!r}: built {found}, expected {TREE_DIGESTS[role]}")
        if os.path.lexists(target):
            os.rename(target, scratch / "damaged")
        os.rename(fresh, target)
    finally:
        shutil.rmtree(scratch)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    deadline = time.monotonic() + LOCK_SECONDS
    with open(path, "w") as stream:
        while not _try_lock(stream.fileno()):
            if time.monotonic() > deadline:
                raise TransportError(f"{path}: held by another process for {LOCK_SECONDS:.0f} s")
            time.sleep(0.05)
        yield


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_tiny(directory: Path, seed: str) -> None:
    """Writes one tiny checkpoint whose weights follow from ``seed``: three shards, index, config and tokenizer."""
    directory.mkdir()
    weight_map: dict[str, str] = {}
    total = 0
    parts = _shards(seed)
    for number, tensors in enumerate(parts, start=1):
        shard = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        write_safetensors(directory / shard, tensors, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, shard)
        total += sum(len(data) for _, _, data in tensors.values())
    write_index(directory, weight_map, total)
    texts = {"config.json": CONFIG, "generation_config.json": GENERATION_CONFIG, **tokenizer_files()}
    for name, content in texts.items():
        (directory / name).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="ascii")


def _shards(seed: str) -> list[dict[str, Tensor]]:
    embedding = {"model.embed_tokens.weight": (VOCAB_SIZE, HIDDEN)}
    head = {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB_SIZE, HIDDEN)}
    layers = [_layer_shapes(f"model.layers.{number}.") for number in range(LAYERS)]
    shapes = [{**embedding, **layers[0]}, *layers[1:-1], {**layers[-1], **head}]
    return [{name: ("BF16", shape, _weights(seed, name, shape)) for name, shape in part.items()} for part in shapes]


def _layer_shapes(prefix: str) -> dict[str, tuple[int, ...]]:
    kv_size = KV_HEADS * HIDDEN // HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        "self_attn.k_proj.weight": (kv_size, HIDDEN),
        "self_attn.v_proj.weight": (kv_size, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
    }
    return {prefix + name: shape for name, shape in shapes.items()}


def _weights(seed: str, name: str, shape: tuple[int, ...]) -> bytes:
    """BF16, uniform: matrices around 0 with deviation ``MATRIX_STD``, norms around 1 within ``NORM_SPREAD``."""
    import numpy as np

    raw = hashlib.shake_256(f"{seed}/{name}".encode()).digest(2 * math.prod(shape))
    unit = (np.frombuffer(raw, "<u2").astype(np.float32) - np.float32(32767.5)) / np.float32(32768)
    is_norm = len(shape) == 1
    scale = np.float32(NORM_SPREAD if is_norm else MATRIX_STD * math.sqrt(3))
    values = unit * scale + np.float32(1 if is_norm else 0)
    bits = values.astype("<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return bytes(rounded.astype("<u2").tobytes())
