"""``load.clean``: what the load saw over all cycles, judged as one. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vst.lanes.endurance.cycles import Arrival
from vst.load.judge import LoadReport, load_check
from vst.verdict import Check


def clean_check(arrivals: Sequence[Arrival], cycles: int) -> Check:
    """Every request of every load was answered as the declared policy allows; the first that was not is named with its
    cycle. Too few loads leave it inconclusive by the states that were not seen."""
    loads = [(one, report) for one in arrivals if one.cycle for report in one.loads]
    report = together([(f"cycle {one.cycle}, to {one.role}", report) for one, report in loads])
    needed = ("A", "B") if len({one.cycle for one, _ in loads}) == cycles else ("A", "B", "every cycle")
    return load_check("load.clean", report, needed, "endurance.json")


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
