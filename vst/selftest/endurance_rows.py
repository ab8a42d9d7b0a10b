"""Rows of the table about time: what goes wrong only after some cycles, or only under load, put through lane L6."""

from __future__ import annotations

import random
from collections.abc import Iterator

from vst.selftest.content_rows import IDENTITIES
from vst.selftest.lifecycle_rows import PACED
from vst.selftest.row import Row, fault

BEFORE_CYCLES = IDENTITIES + 3 + 2 + 3
"""Updates that L2, one cycle of L3 with its last push, L4, and the learning of L6 make before the first cycle."""

ANSWERS_BEFORE = 120
"""Completions that are surely answered before the first cycle under load begins."""


def _l6(cycles: int, *faults: str) -> tuple[str, ...]:
    asked = f"endurance.faults=[{','.join(faults)}]"
    few = ("lane.cycles=1", "lane.controls=none", "oracle.output_tokens=2", "endurance.answers=2")
    return (*few, *PACED, f"endurance.cycles={cycles}", asked)


def healthy() -> Iterator[Row]:
    """A server that stays what it is."""
    yield Row("healthy_cycles", "L6", overrides=_l6(6, "publisher_killed", "update_refused"))


def rows(rng: random.Random) -> Iterator[Row]:
    """The rows of one seed."""
    fifth = fault("noise", amount=0.02, seed=rng.randrange(1000), first=BEFORE_CYCLES + 2 * 5 - 1)
    yield Row("drift_in_the_fifth_cycle_under_load", "L6", fifth, ("cycles.all",), "cycle 5", overrides=_l6(6))
    leak = fault("leak", amount=rng.randrange(20, 40))
    yield Row("memory_that_leaks", "L6", leak, ("memory.trend",), overrides=_l6(6))
    bad = fault("answer", phase="generate", status=500, first=(at := ANSWERS_BEFORE + rng.randrange(20)), last=at)
    yield Row("one_lost_answer_under_load", "L6", bad, ("load.clean",), overrides=_l6(6))
    cut = fault("cut", phase="generate", when="after", first=at, last=at)
    yield Row("one_cut_answer_under_load", "L6", cut, ("load.clean",), overrides=_l6(6))
    cuts = fault("wait_cuts", tokens=1, first=BEFORE_CYCLES)
    yield Row("wait_that_cuts_under_load", "L6", cuts, ("load.clean",), overrides=_l6(6))
