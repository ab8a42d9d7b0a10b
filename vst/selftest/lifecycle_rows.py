"""Rows of the table about moves: pauses, sleeps and wakes that are not what the server says, put through lane L4."""

from __future__ import annotations

import random
from collections.abc import Iterator

from vst.selftest.row import Row, fault

PACED = (
    "server.args=['--step-ms=20']",
    *("load.prompts=3", "load.rounds=2", "load.output_tokens=16", "load.concurrency=2"),
)
L4 = (
    "lane.cycles=1",
    "lane.controls=none",
    *PACED,
    "oracle.output_tokens=2",
    "load.settle_s=0.5",
    "lifecycle.quiet_s=0.2",
)
"""Streams slow enough for a pause to find them in the middle, few enough not to fill a processor, and short waits."""


def healthy() -> Iterator[Row]:
    """Servers whose moves are what they say."""
    yield Row("healthy_moves", "L4", overrides=L4)
    yield Row("healthy_moves_two_ranks", "L4", overrides=(*L4, "server.tensor_parallel_size=2"))


def rows(rng: random.Random) -> Iterator[Row]:
    """The rows of one seed."""
    yield from _pauses(rng)
    yield from _sleeps(rng)
    yield from _flags()


def _row(name: str, kind: str, checks: tuple[str, ...], says: str = "", **fields: object) -> Row:
    return Row(name, "L4", fault(kind, **fields), checks, says, overrides=L4)


def _pauses(rng: random.Random) -> Iterator[Row]:
    keep = ("pause.keep",)
    yield _row("keep_that_drops_a_token", "keep_drops", keep)
    yield _row("keep_that_doubles_a_token", "keep_doubles", keep, tokens=rng.randrange(1, 3))
    yield _row("keep_that_changes_a_token", "keep_changes", keep, tokens=rng.randrange(1, 4))
    for mode in ("keep", "abort", "wait"):
        yield _row(f"pause_{mode}_that_does_not_pause", "pause_ignored", ("pause.admission",), modes=[mode])
    admitting = rng.choice(("keep", "wait"))
    yield _row("pause_that_admits", "admits", ("pause.admission",), modes=[admitting])
    yield _row("abort_that_keeps", "abort_keeps", ("pause.abort",))
    yield _row("wait_that_cuts", "wait_cuts", ("pause.wait",), tokens=rng.randrange(1, 3))


def _sleeps(rng: random.Random) -> Iterator[Row]:
    frees = ("sleep.memory",)
    level = rng.choice((1, 2))
    yield _row("sleep_that_frees_nothing", "sleep_frees_nothing", frees)
    yield _row("sleep_that_keeps_the_cache", "sleep_frees_nothing", frees, tags=["kv_cache"])
    yield _row("sleep_that_frees_nothing_at_one_level", "sleep_frees_nothing", frees, levels=[level])
    orders = ("wake.orders",)
    yield _row("wake_that_restores_nothing", "wake_restores_nothing", orders, levels=[1])
    part = rng.choice((r"layers\.1\.", r"layers\.2\.mlp", "lm_head", "rotary"))
    yield _row("wake_that_restores_a_part", "wake_restores_nothing", orders, levels=[1], match=part)
    order = rng.choice((["kv_cache", "weights"], ["weights", "kv_cache"]))
    yield _row("wake_order_that_breaks", "wake_order", orders, tags=order)
    yield _row("buffers_lost_by_level_2", "wake_restores_nothing", ("wake.level2_needs_push",), levels=[2],
               match="rotary")  # fmt: skip


def _flags() -> Iterator[Row]:
    state = ("sleep.state",)
    yield _row("flag_that_denies_sleep", "flag_lies", state, flag="is_sleeping", value=False, states=["asleep"])
    yield _row("gauge_that_denies_sleep", "flag_lies", state, flag="gauge", value=True, states=["asleep"])
    yield _row("flag_that_denies_a_pause", "flag_lies", ("transfer.completed",), flag="is_paused", value=False)
