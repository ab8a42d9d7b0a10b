"""Rows of the table about content: what an update leaves wrong in the weights, the buffers, the cache and the label."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from vst.selftest.row import Row, fault

IDENTITIES = 2
"""Updates that lane L2 makes before L3 begins: the next one is the first to B."""

FIRST_TO_B = IDENTITIES + 1
L3 = ("lane.cycles=1", "lane.controls=none")
FAMILIES = ("embedding", "head", "norm", "attention_in", "attention_out", "mlp_in", "mlp_out")


def rows(rng: random.Random, tensors: Sequence[str], experts: int) -> Iterator[Row]:
    """The rows of one seed; ``tensors`` are the names of the embedded pair."""
    yield from _stale(rng, tensors)
    yield from _changed(rng, tensors, experts)
    yield from _late(rng)
    yield from _cache_and_label(rng)


def _exactly(name: str) -> str:
    return f"^{re.escape(name)}$"


def _stale(rng: random.Random, tensors: Sequence[str]) -> Iterator[Row]:
    arrives = ("transition.to_b",)
    one = _exactly(rng.choice(tensors))
    yield Row("stale_tensor", "L3", fault("stale", match=one), arrives, overrides=L3, quick=True)
    yield Row("stale_family", "L3", fault("stale", family=rng.choice(FAMILIES)), arrives, overrides=L3)
    buffer = _exactly(rng.choice(tensors))
    yield Row("stale_buffer", "L3", fault("stale", of="buffer", match=buffer), arrives, overrides=L3)
    rank = fault("stale", rank=rng.randrange(2), match=_exactly(rng.choice([t for t in tensors if "norm" not in t])))
    yield Row("stale_rank", "L3", rank, arrives, overrides=(*L3, "server.tensor_parallel_size=2"))
    missed = fault("stale", replica=1, first=rng.choice((1, FIRST_TO_B)))
    ranks = (*L3, "server.data_parallel_size=2")
    yield Row("rank_not_updated", "L3", missed, ("replicas.each",), "rank 1: no effect", overrides=ranks, quick=True)
    number = rng.randrange(1, 3)
    server = fault("stale", instance=number, match=one)
    several = (*L3, "server.replicas=2")
    yield Row("replica_not_updated", "L3", server, ("replicas.each",), f"server {number}", overrides=several)
    back = fault("stale", first=FIRST_TO_B + 1, match=_exactly(rng.choice(tensors)))
    yield Row("stale_on_the_way_back", "L3", back, ("transition.back",), overrides=L3)
    yield Row("no_effect", "L3", fault("stale"), arrives, "no effect", overrides=L3, quick=True)


def _changed(rng: random.Random, tensors: Sequence[str], experts: int) -> Iterator[Row]:
    moved = ("identity.record",)
    a, b = rng.sample(range(experts), 2)
    pair = {"match": rf"\.experts\.{a}\.", "with_match": f".experts.{b}."}
    yield Row("swapped_experts", "L3", fault("swap", **pair, first=FIRST_TO_B), ("transition.to_b",), pair="experts",
              overrides=L3)  # fmt: skip
    yield Row("experts_swapped_each_time", "L2", fault("swap", **pair), moved, pair="experts")
    yield Row("scale_lost", "L2", fault("scale_lost"), moved, pair="scaled")
    one_scale = fault("scale_lost", match=rf"layers\.{rng.randrange(2)}\.mlp", first=FIRST_TO_B)
    yield Row("one_scale_lost", "L3", one_scale, ("transition.to_b",), pair="scaled", overrides=L3)
    dtype = rng.choice(("float8_e4m3fn", "float8_e5m2"))
    squeezed = fault("squeeze", dtype=dtype, match=_exactly(rng.choice(tensors)))
    yield Row("dtype_squeezed", "L2", squeezed, moved, quick=True)
    nan = fault("nan", match=_exactly(rng.choice(tensors)), amount=0.01, seed=rng.randrange(1000))
    yield Row("nan", "L2", nan, moved, overrides=("oracle.probes=8",))
    zero = fault("zero", match=_exactly(rng.choice(tensors)), first=FIRST_TO_B)
    yield Row("zeroed", "L3", zero, ("transition.to_b",), overrides=L3)
    noise = fault("noise", family=rng.choice(FAMILIES), amount=0.01, seed=rng.randrange(1000), first=FIRST_TO_B)
    yield Row("slightly_off", "L3", noise, ("transition.to_b",), overrides=L3)
    fifth = IDENTITIES + 2 * 5 - 1
    drift = fault("noise", amount=0.02, first=fifth, seed=rng.randrange(1000))
    cycles = ("lane.cycles=5", "lane.controls=none")
    yield Row("drift_in_the_fifth_cycle", "L3", drift, ("transition.to_b",), "cycle 5", overrides=cycles)


def _late(rng: random.Random) -> Iterator[Row]:
    both = ("transition.to_b", "transition.label")
    yield Row("label_without_content", "L3", fault("late"), both, "label without content", overrides=L3, quick=True)
    yield Row("finish_that_lies", "L3", fault("finish_lies"), both, "no effect", overrides=L3)
    later = fault("finish_lies", seconds=rng.uniform(30, 60))
    yield Row("finish_that_is_early", "L3", later, both, overrides=L3)


def _cache_and_label(rng: random.Random) -> Iterator[Row]:
    says = "cached tokens of the old weights"
    yield Row("cache_kept", "L3", fault("cache_kept"), ("cache.cold",), says, overrides=L3, quick=True)
    refuses = fault("cache_refuses", first=rng.choice((1, 2)))
    yield Row("cache_reset_refuses", "L2", refuses, ("transfer.completed",), "success", quick=True)
    yield Row("cache_unseen", "L3", fault("cache_unseen"), ("cache.cold",), "does not report", overrides=L3)
    kept = fault("label_kept", first=rng.choice((1, FIRST_TO_B)))
    yield Row("content_without_label", "L3", kept, warning="transition.label", overrides=L3, quick=True)
    label = f"run-{rng.randrange(1000)}"
    moved = fault("label_moves", after=rng.randrange(10, 20), label=label)
    yield Row("label_moves_behind_our_back", "L3", moved, ("server.same",), label, overrides=L3)
    # From the third answer of the record that is taken after the first push of B.
    foreign = fault("foreign_update", after=22, label=label, amount=0.5, seed=rng.randrange(1000))
    yield Row("somebody_else_pushes", "L3", foreign, ("transition.to_b",), overrides=L3)
    other = fault("version_moves", after=rng.randrange(10, 14), label="0.31.0")
    yield Row("version_changes_behind_our_back", "L2", other, ("server.same",), "0.31.0")
    yield Row("restarted_behind_our_back", "L2", fault("restart", after=rng.randrange(10, 14)), ("server.same",),
              "restarted", quick=True)  # fmt: skip
