"""The trend of a server's memory over the cycles, as a slope with an interval. Pure functions.

The slope is Theil's and Sen's: the median of the slopes between all pairs of samples, with Sen's distribution-free
interval (P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63, 1968). A single jump, as
an allocator makes it, hardly moves it; a leak that repeats does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vst.verdict import Check, Outcome

CONFIDENCE = 0.95
LEAST = 6
"""Samples below which the interval says nothing: with fewer, all pairs may rise by chance alone."""


@dataclass(frozen=True)
class Trend:
    """Bytes a cycle: the slope and the ends of its interval; ``first`` and ``last`` are samples in bytes."""

    samples: int
    slope: float
    low: float
    high: float
    first: int
    last: int
    median: float

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "confidence": CONFIDENCE, "method": "Theil-Sen"}


def trend(samples: Sequence[int]) -> Trend:
    """The trend of one sample for each cycle, in bytes; there must be at least two."""
    from scipy.stats import theilslopes

    found = theilslopes(samples, range(len(samples)), CONFIDENCE)
    middle = sorted(samples)[len(samples) // 2]
    numbers = (float(found.slope), float(found.low_slope), float(found.high_slope))
    return Trend(len(samples), *numbers, samples[0], samples[-1], float(middle))


def trend_check(samples: Sequence[int], growth: float, source: str) -> Check:
    """``memory.trend``: the server's memory does not grow by more than the share ``growth`` of it in a cycle.

    It fails when the whole interval is above that, passes when the whole interval is below it, and can otherwise not be
    told. ``source`` says what was measured.
    """
    expected = f"a slope whose interval lies below {growth:g} of the memory a cycle"
    if len(samples) < LEAST:
        reason = f"{len(samples)} samples of {source}: a trend needs {LEAST}; set endurance.cycles higher"
        return Check("memory.trend", Outcome.INCONCLUSIVE, {"samples": list(samples)}, expected, growth, reason)
    found = trend(samples)
    limit = growth * found.median
    observed = {"source": source, "limit": round(limit), **found.to_json()}
    text = f"{found.slope / 2**20:+.2f} MiB a cycle, {CONFIDENCE:.0%} interval {found.low / 2**20:+.2f} to "
    text += f"{found.high / 2**20:+.2f}, allowed {limit / 2**20:.2f} ({source})"
    if found.low > limit:
        return Check("memory.trend", Outcome.FAIL, observed, expected, growth, f"the memory grows: {text}")
    if found.high > limit:
        reason = f"the interval does not tell: {text}; set endurance.cycles higher"
        return Check("memory.trend", Outcome.INCONCLUSIVE, observed, expected, growth, reason)
    return Check("memory.trend", Outcome.PASS, observed, expected, growth)
