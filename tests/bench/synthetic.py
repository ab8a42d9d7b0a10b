"""Synthetic Llama checkpoints for the benchmarks: real enough for a vLLM server, of a given size and cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vst.checkpoint.tiny import CONFIG
from vst.checkpoint.tiny_tokenizer import tokenizer_files
from vst.checkpoint.writer import safetensors_header, write_index

POOL_ELEMENTS = 32 << 20


@dataclass(frozen=True)
class Shape:
    """The sizes of one case; ``tied`` leaves the head out, ``shards`` is how many files there are."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool = False
    shards: int = 1

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, wide, kv = self.hidden, self.intermediate, self.hidden // self.heads * self.kv_heads
        yield "model.embed_tokens.weight", (self.vocab, hidden)
        for number in range(self.layers):
            for name, shape in (
                ("input_layernorm", (hidden,)),
                ("self_attn.q_proj", (hidden, hidden)),
                ("self_attn.k_proj", (kv, hidden)),
                ("self_attn.v_proj", (kv, hidden)),
                ("self_attn.o_proj", (hidden, hidden)),
                ("post_attention_layernorm", (hidden,)),
                ("mlp.gate_proj", (wide, hidden)),
                ("mlp.up_proj", (wide, hidden)),
                ("mlp.down_proj", (hidden, wide)),
            ):
                yield f"model.layers.{number}.{name}.weight", shape
        yield "model.norm.weight", (hidden,)
        if not self.tied:
            yield "lm_head.weight", (self.vocab, hidden)

    @property
    def nbytes(self) -> int:
        return sum(2 * int(np.prod(shape)) for _, shape in self.tensors())

    def config(self) -> dict[str, object]:
        return {
            **CONFIG,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.hidden // self.heads,
            "vocab_size": self.vocab,
            "tie_word_embeddings": self.tied,
            "initializer_range": 0.02,
        }


CASES = {
    "0.25GB-1shard": Shape(1024, 2816, 11, 16, 4, 4096),
    "0.25GB-8shards": Shape(1024, 2816, 11, 16, 4, 4096, shards=8),
    "0.25GB-3000tensors": Shape(192, 512, 333, 3, 1, 512),
    "1GB-1shard": Shape(2048, 5632, 10, 16, 4, 16384),
    "1GB-8shards": Shape(2048, 5632, 10, 16, 4, 16384, shards=8),
    "1GB-3000tensors": Shape(384, 1024, 333, 6, 2, 512),
    "1GB-1tensor": Shape(2048, 2048, 1, 16, 4, 262144, tied=True),
    "4GB-1shard": Shape(2048, 5632, 43, 16, 4, 16384),
    "4GB-8shards": Shape(2048, 5632, 43, 16, 4, 16384, shards=8),
}


def write_case(directory: Path, shape: Shape, seed: int) -> Path:
    """The checkpoint, made once; its weights are small normal numbers, the same for the same seed."""
    if (directory / "done").exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    pool = _pool(seed)
    names = list(shape.tensors())
    per = -(-len(names) // shape.shards)
    weight_map: dict[str, str] = {}
    for number in range(shape.shards):
        part = names[number * per : (number + 1) * per]
        file = f"model-{number + 1:05d}-of-{shape.shards:05d}.safetensors"
        with (directory / file).open("wb") as out:
            out.write(safetensors_header({name: ("BF16", size) for name, size in part}, {"format": "pt"}))
            for name, size in part:
                _write(out, pool, name, int(np.prod(size)))
        weight_map |= {name: file for name, _ in part}
    write_index(directory, weight_map, shape.nbytes)
    (directory / "config.json").write_text(json.dumps(shape.config()))
    for name, content in tokenizer_files().items():
        (directory / name).write_text(json.dumps(content))
    (directory / "done").touch()
    return directory


def _pool(seed: int) -> np.ndarray:
    """BF16 as integers."""
    values = np.random.default_rng(seed).standard_normal(POOL_ELEMENTS, dtype=np.float32) * np.float32(0.02)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def _write(out: object, pool: np.ndarray, name: str, count: int) -> None:
    start = hash_of(name) % (len(pool) // 2)
    while count:
        piece = pool[start : start + count]
        out.write(memoryview(piece).cast("B"))  # type: ignore[attr-defined]
        count -= len(piece)
        start = 0


def hash_of(name: str) -> int:
    return sum((index + 1) * ord(letter) for index, letter in enumerate(name)) * 7919
