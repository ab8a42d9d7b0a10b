"""Every seat of a run is judged: each of several servers, each data-parallel rank. The worst decides, and is named.

The other checks of a lane speak of the first seat; with one seat they say it all, and ``replicas.each`` is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vst.lanes.session import Session
from vst.oracle.compare import difference, looks_like
from vst.oracle.record import Record
from vst.server.seats import seat_name, seat_titles
from vst.verdict import Check, Outcome

EACH = "replicas.each"


def judge_seats(
    titles: Sequence[str], records: Sequence[Record], name: str, expected: Record, previous: Record, floor: float
) -> list[dict[str, Any]]:
    """For every seat what its record after the arrival ``name`` differs by, and what it looks like if it must not."""
    results = []
    for number, (title, record) in enumerate(zip(titles, records, strict=True)):
        apart = difference(record, expected, floor)
        like = "" if apart.equal else looks_like(record, expected, previous, floor)
        results.append({"seat": title, **apart.to_json(), "record": _file(name, number), "looks_like": like})
    return results


def _file(name: str, seat: int) -> str:
    return f"record-{seat_name(name, seat)}.json"


def each_check(results: Sequence[dict[str, Any]], wanted: int, floor: float | None) -> Check:
    """``replicas.each``: every seat answered as it must after every arrival; the first that did not is named."""
    expected = f"{wanted} records, each equal to what its seat must serve"
    bad = next((one for one in results if not one["equal"]), None)
    if bad is not None:
        reason = f"{bad['seat']}: {bad['looks_like']}; first differing {bad['first']} ({bad['record']})"
        return Check(EACH, Outcome.FAIL, list(results), expected, floor, reason, bad["record"])
    if len(results) < wanted:
        reason = f"only {len(results)} of {wanted} records could be judged: an earlier step did not hold"
        return Check(EACH, Outcome.INCONCLUSIVE, list(results), expected, floor, reason)
    return Check(EACH, Outcome.PASS, list(results), expected, floor)


def arrived(
    session: Session, records: Sequence[Record], name: str, expected: Record, previous: Record
) -> list[dict[str, Any]]:
    """``judge_seats`` for the seats of this run."""
    titles = seat_titles(vars(session.conf.server))
    return judge_seats(titles, records, name, expected, previous, session.need("floor"))


def seat_checks(session: Session, results: Sequence[dict[str, Any]], arrivals: int) -> list[Check]:
    """``replicas.each`` over ``arrivals`` arrivals, where there is more than one seat."""
    seats = len(session.seats)
    return [each_check(results, arrivals * seats, session.floor)] if seats > 1 else []
