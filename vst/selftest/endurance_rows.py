"""Rows of the table about time: what goes wrong only after some cycles, or only under load, put through lane L6."""

from __future__ import annotations

import random
from collections.abc import Iterator

from vst.selftest.content_rows import IDENTITIES
from vst.selftest.lifecycle_rows import PACED
from vst.selftest.row import PROBES, Row, fault

BEFORE_CYCLES = IDENTITIES + 3 + 2 + 3 + 3
"""Updates that L2, one cycle of L3 with its last push, L4, L5, and the learning of L6 make before the first cycle."""

FIRST_UNDER_LOAD = PROBES + 2
"""The first call of a load, counted from the last update before the cycles: a record is taken before."""


def _l6(cycles: int, *faults: str) -> tuple[str, ...]:
    asked = f"endurance.faults=[{','.join(faults)}]"
    few = ("lane.cycles=1", "lane.controls=none", "oracle.output_tokens=2", "endurance.answers=2")
    questions = ("eval.limit=8", "eval.max_tokens=4")
    return (*few, *questions, *PACED, f"endurance.cycles={cycles}", asked)


def healthy() -> Iterator[Row]:
    """A server that stays what it is."""
    yield Row("healthy_cycles", "L6", overrides=_l6(6, "publisher_killed", "update_refused"))


def rows(rng: random.Random) -> Iterator[Row]:
    """The rows of one seed."""
    fifth = fault("noise", amount=0.02, seed=rng.randrange(1000), first=BEFORE_CYCLES + 2 * 5 - 1)
    yield Row("drift_in_the_fifth_cycle_under_load", "L6", fifth, ("cycles.all",), "cycle 5", overrides=_l6(6))
    leak = fault("leak", amount=rng.randrange(20, 40))
    yield Row("memory_that_leaks", "L6", leak, ("memory.trend",), overrides=_l6(6))
    at = FIRST_UNDER_LOAD + rng.randrange(4)
    one = {"phase": "generate", "update": BEFORE_CYCLES, "first": at, "last": at}
    bad = fault("answer", status=500, **one)
    yield Row("one_lost_answer_under_load", "L6", bad, ("load.clean",), overrides=_l6(6))
    cut = fault("cut", when="after", **one)
    yield Row("one_cut_answer_under_load", "L6", cut, ("load.clean",), overrides=_l6(6))
    cuts = fault("wait_cuts", tokens=1, first=BEFORE_CYCLES)
    yield Row("wait_that_cuts_under_load", "L6", cuts, ("load.clean",), overrides=_l6(6))
