"""The checks of lane L6 on its cycles, from what they left. Pure functions: a stored run is judged again by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vst.lanes.endurance.arrival import Arrival
from vst.lanes.endurance.trend import trend_check
from vst.load.judge import LoadReport, load_check
from vst.verdict import Check, Outcome

FILE = "endurance.json"
WANTED = {"checkpoint": "B", "model": "A"}
LEARNING = ("model", "checkpoint", "model")
"""What is brought before the first cycle, so that the answers of a load by A and by B are known."""


def cycles_check(arrivals: Sequence[Arrival], cycles: int, floor: float | None) -> Check:
    """``cycles.all``: every change of every cycle ended at the content that was pushed; the first that did not is
    named.
    """
    expected = f"{cycles} cycles to B and back, each equal to its reference"
    done = [one for one in arrivals if one.cycle]
    observed = {"cycles": sum(one.role == "model" and one.good for one in done), "changes": len(done)}
    bad = next(((one, seat) for one in arrivals for seat in one.seats if not seat["equal"]), None)
    if bad is not None:
        one, seat = bad
        where = f"cycle {one.cycle}" if one.cycle else "before the first cycle"
        at = f"{where}, to {WANTED[one.role]}" + (f", {seat['seat']}" if seat["seat"] else "")
        reason = f"{at}: {seat['looks_like']}; first differing {seat['first']}"
        return Check("cycles.all", Outcome.FAIL, observed, expected, floor, reason, seat["record"])
    if len(done) < 2 * cycles:
        reason = f"only {len(done)} of {2 * cycles} changes could be judged: an earlier step did not hold"
        return Check("cycles.all", Outcome.INCONCLUSIVE, observed, expected, floor, reason, FILE)
    return Check("cycles.all", Outcome.PASS, observed, expected, floor, evidence=FILE)


def clean_check(arrivals: Sequence[Arrival], cycles: int) -> Check:
    """``load.clean``: every request beside every cycle was answered as the declared policy allows; the first that was
    not is named with its cycle.
    """
    loads = [(one, report) for one in arrivals if one.cycle for report in one.loads]
    report = together([(f"cycle {one.cycle}, to {WANTED[one.role]}", report) for one, report in loads])
    found = load_check("load.clean", report, tuple(WANTED.values()), FILE)
    done = len({(one.cycle, one.role) for one, _ in loads})
    if found.outcome is Outcome.PASS and done < 2 * cycles:
        reason = f"only {done} of {2 * cycles} changes had a load beside them: an earlier step did not hold"
        return Check(found.id, Outcome.INCONCLUSIVE, found.observed, found.expected, reason=reason, evidence=FILE)
    return found


def together(reports: Sequence[tuple[str, LoadReport]]) -> LoadReport:
    """One report over several loads, each with the name that its first bad answer is told by."""
    bad = next((f"{name}, {one.first_bad}" for name, one in reports if one.first_bad is not None), None)
    return LoadReport(
        sent=sum(one.sent for _, one in reports),
        kinds=_sum(one.kinds for _, one in reports),
        claims=_sum(one.claims for _, one in reports),
        crossing=sum(one.crossing for _, one in reports),
        held_back=sum(one.held_back for _, one in reports),
        first_bad=bad,
        bad=sum(one.bad for _, one in reports),
    )


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


def samples(arrivals: Sequence[Arrival]) -> list[int | None]:
    """The memory after every change of every cycle."""
    return [one.memory for one in arrivals if one.cycle]


def memory_check(found: Sequence[int | None], allowed: int, source: str) -> Check:
    """``memory.trend``, or why there is none."""
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        reason = f"the memory could not be read: {source}"
        return Check("memory.trend", Outcome.INCONCLUSIVE, None, "a slope with an interval", allowed, reason)
    return trend_check(known, allowed, source)


def final_check(results: Sequence[Mapping[str, Any]], final: str, floor: float | None) -> Check:
    """``cycles.final``: what the lane leaves is what was asked for, on every seat."""
    expected, file = f"ends at {final}", "record-endurance-final.json"
    if not results:
        reason = "not reached: an earlier step did not hold"
        return Check("cycles.final", Outcome.INCONCLUSIVE, None, expected, floor, reason)
    observed = [dict(one) for one in results]
    bad = next((one for one in results if not one["equal"]), None)
    if bad is not None:
        reason = f"{bad['seat']} {bad['looks_like']}; first differing {bad['first']}".strip()
        return Check("cycles.final", Outcome.FAIL, observed, expected, floor, reason, bad["record"])
    return Check("cycles.final", Outcome.PASS, observed, expected, floor, evidence=file)
