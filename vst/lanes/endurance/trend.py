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
MIB = 1 << 20
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

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "confidence": CONFIDENCE, "method": "Theil-Sen"}


def trend(samples: Sequence[int]) -> Trend:
    """The trend of samples in bytes, of which there are two a cycle, one after each change; at least two in all."""
    from scipy.stats import theilslopes

    found = theilslopes(samples, [number / 2 for number in range(len(samples))], CONFIDENCE)
    numbers = (float(found.slope), float(found.low_slope), float(found.high_slope))
    return Trend(len(samples), *numbers, samples[0], samples[-1])


def limit(weights: int, share: float, least: int) -> int:
    """The growth a cycle that is allowed: a share of the checkpoint's bytes, or what no allocator's noise hides."""
    return max(int(weights * share), least)


def trend_check(samples: Sequence[int], allowed: int, source: str) -> Check:
    """``memory.trend``: the server's memory does not grow by more than ``allowed`` bytes a cycle.

    It fails when the whole interval is above that, passes when the whole interval is below it, and can otherwise not be
    told. ``source`` says what was measured.
    """
    expected = f"a slope whose interval lies below {allowed} bytes a cycle"
    if len(samples) < LEAST:
        reason = f"{len(samples)} samples of {source}: a trend needs {LEAST}; set endurance.cycles higher"
        return Check("memory.trend", Outcome.INCONCLUSIVE, {"samples": list(samples)}, expected, allowed, reason)
    found = trend(samples)
    observed = {"source": source, **found.to_json()}
    interval = f"{CONFIDENCE:.0%} interval {found.low / MIB:+.2f} to {found.high / MIB:+.2f}"
    text = f"{found.slope / MIB:+.2f} MiB a cycle, {interval}, allowed {allowed / MIB:.2f} ({source})"
    if found.low > allowed:
        return Check("memory.trend", Outcome.FAIL, observed, expected, allowed, f"the memory grows: {text}")
    if found.high > allowed:
        reason = f"the interval does not tell: {text}; set endurance.cycles higher"
        return Check("memory.trend", Outcome.INCONCLUSIVE, observed, expected, allowed, reason)
    return Check("memory.trend", Outcome.PASS, observed, expected, allowed)
