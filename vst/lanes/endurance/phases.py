"""How long each phase of an update took, over all cycles: a distribution and not an average. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vst.provenance.timeline import Phase


def by_name(phases: Iterable[Phase], number: int) -> dict[str, float]:
    """The seconds of each phase of one transaction; a phase that comes twice in it (reset) is counted together."""
    found: dict[str, float] = {}
    for phase in phases:
        if phase.transaction == number and phase.seconds is not None:
            found[phase.name] = round(found.get(phase.name, 0.0) + phase.seconds, 6)
    return found


def distribution(arrivals: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """For each phase: how often it was timed, the smallest, the quartiles, the 95th percentile and the largest time.

    Percentiles are linear between the order statistics (R's type 7). Seconds.
    """
    names = dict.fromkeys(name for arrival in arrivals for name in arrival)
    return {name: _described(sorted(one[name] for one in arrivals if name in one)) for name in names}


def _described(times: Sequence[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else list(times) * 99
    marks = {"p25": cuts[24], "median": cuts[49], "p75": cuts[74], "p95": cuts[94]}
    shown = {"min": times[0], **marks, "max": times[-1]}
    return {"n": len(times), **{name: round(value, 6) for name, value in shown.items()}}
