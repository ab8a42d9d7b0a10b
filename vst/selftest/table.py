"""The whole table: healthy servers, which must PASS, and servers with a known fault, which must be caught."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from vst.checkpoint.tiny import LAYERS
from vst.errors import ConfigError
from vst.selftest import call_rows, content_rows, endurance_rows, lifecycle_rows
from vst.selftest.pairs import EXPERTS
from vst.selftest.row import Row

ONE_CYCLE = ("lane.cycles=1",)
PLAIN = ("lane.cycles=1", "lane.controls=none")


def healthy() -> Iterator[Row]:
    """Servers with nothing wrong, in the shapes in which a fault could hide behind a false alarm."""
    yield Row("healthy", "L3")
    yield Row("healthy_once", "L3", overrides=PLAIN, quick=True)
    yield Row("healthy_experts", "L3", pair="experts", overrides=ONE_CYCLE)
    yield Row("healthy_scales", "L3", pair="scaled", overrides=ONE_CYCLE)
    yield Row("healthy_two_ranks", "L3", overrides=(*PLAIN, "server.tensor_parallel_size=2"))
    yield Row("healthy_two_replicas", "L3", overrides=(*PLAIN, "server.data_parallel_size=2"), quick=True)
    yield Row("healthy_two_servers", "L3", overrides=(*PLAIN, "server.replicas=2"))
    yield Row("healthy_without_prefix_caching", "L3", overrides=(*PLAIN, "server.args=[--no-enable-prefix-caching]"))
    yield Row("healthy_many_buckets", "L3", overrides=(*PLAIN, "transfer.bucket_bytes=4096"))
    slow = ("transfer.rate_limit_bytes_per_s=1000000", "transfer.bucket_bytes=65536")
    yield Row("healthy_slow", "L2", overrides=slow)


def table(seed: int) -> list[Row]:
    """All rows of one seed; a seed draws what a fault hits, each group of rows by itself."""
    sound = [*healthy(), *lifecycle_rows.healthy(), *endurance_rows.healthy()]
    faulty = [
        *content_rows.rows(_rng(seed, "content"), tensor_names(), EXPERTS),
        *call_rows.rows(_rng(seed, "calls")),
        *lifecycle_rows.rows(_rng(seed, "moves")),
        *endurance_rows.rows(_rng(seed, "endurance")),
    ]
    rows = [*sound, *faulty]
    names = [row.name for row in rows]
    if len(set(names)) != len(names):
        raise ConfigError(f"two rows of the table have one name: {sorted(n for n in names if names.count(n) > 1)}")
    return rows


def _rng(seed: int, part: str) -> random.Random:
    return random.Random(f"vst-selftest/{seed}/{part}")


def select(rows: Sequence[Row], wanted: str) -> list[Row]:
    """The rows that ``lane.rows`` asks for: ``all``, ``quick``, or names with * separated by commas."""
    if wanted == "all":
        return list(rows)
    if wanted == "quick":
        return [row for row in rows if row.quick]
    patterns = [part.strip() for part in wanted.split(",") if part.strip()]
    unknown = [pattern for pattern in patterns if not any(fnmatchcase(row.name, pattern) for row in rows)]
    if unknown or not patterns:
        have = ", ".join(row.name for row in rows)
        raise ConfigError(f"lane.rows={wanted}: no row is named {', '.join(unknown) or 'nothing'}; there are: {have}")
    return [row for row in rows if any(fnmatchcase(row.name, pattern) for pattern in patterns)]


def tensor_names() -> list[str]:
    """The tensors of the embedded pair."""
    parts = [f"self_attn.{part}_proj" for part in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    norms = ["input_layernorm", "post_attention_layernorm"]
    layers = [f"model.layers.{n}.{part}.weight" for n in range(LAYERS) for part in (*parts, *norms)]
    return ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", *layers]
