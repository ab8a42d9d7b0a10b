"""The checks of lane ``selftest``, from ``selftest.json`` alone: a stored table is judged again by the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vst.selftest.judging import GOOD
from vst.verdict import Check, Outcome

FILE = "selftest.json"
FORMAT = "vst-selftest/1"
LONGEST = 160
Entry = Mapping[str, Any]
"""One row of the file: what it was, what had to come out, and ``result``, None when it was not run."""


def checks(table: Mapping[str, Any]) -> list[Check]:
    """One check for each row over all its seeds, after the three numbers that the table comes down to."""
    rows = table["rows"]
    names = list(dict.fromkeys(row["name"] for row in rows))
    return [*_sums(rows), *(_row_check(name, [row for row in rows if row["name"] == name]) for name in names)]


def _healthy(row: Entry) -> bool:
    return not row["expected"]["checks"]


def _good(row: Entry) -> bool:
    return row["result"] is not None and row["result"]["outcome"] in GOOD


def _ran(row: Entry) -> bool:
    return row["result"] is not None and row["result"]["outcome"] != "no verdict"


def _sums(rows: Sequence[Entry]) -> list[Check]:
    sound, faulty = [row for row in rows if _healthy(row)], [row for row in rows if not _healthy(row)]
    return [
        _sum("selftest.complete", rows, [row for row in rows if not _ran(row)], "rows with a verdict", Outcome.ERROR),
        _sum("selftest.faults", faulty, [row for row in faulty if not _good(row)], "faults caught"),
        _sum("selftest.healthy", sound, [row for row in sound if not _good(row)], "healthy servers passed"),
    ]


def _sum(id: str, rows: Sequence[Entry], bad: Sequence[Entry], what: str, outcome: Outcome = Outcome.FAIL) -> Check:
    observed, expected = f"{len(rows) - len(bad)} of {len(rows)} {what}", f"{len(rows)} of {len(rows)}"
    if bad:
        reason = f"{observed}: {'; '.join(told(row) for row in bad)}"
        return Check(id, outcome, observed, expected, reason=reason, evidence=FILE)
    if not rows:
        reason = "declared by lane.rows: it asks for none of these"
        return Check(id, Outcome.NOT_APPLICABLE, observed, expected, reason=reason, evidence=FILE)
    return Check(id, Outcome.PASS, observed, expected, reason=observed, evidence=FILE)


def told(row: Entry) -> str:
    """One line about one row."""
    result = row["result"]
    if result is None:
        return f"{row['name']}, seed {row['seed']}: not run"
    by = f" by {', '.join(result['failing'][:3])}" if result["failing"] else ""
    return f"{row['name']}, seed {row['seed']}: {result['outcome']}{by} ({result['seconds']:.1f} s)"


def _row_check(name: str, rows: Sequence[Entry]) -> Check:
    """A row over its seeds; the first seed that was not as it must be is told."""
    id = f"{'healthy' if _healthy(rows[0]) else 'fault'}.{name}"
    wanted = rows[0]["expected"]
    expected = f"FAIL_CLOSED by {', '.join(wanted['checks'])}" if wanted["checks"] else "PASS"
    observed = [{"seed": row["seed"], **(row["result"] or {})} for row in rows]
    bad = next((row for row in rows if not _good(row)), None)
    if bad is not None:
        outcome = Outcome.FAIL if _ran(bad) else Outcome.ERROR
        reason = f"{told(bad)}: {bad['result']['reason']}" if bad["result"] else told(bad)
        return Check(id, outcome, observed, expected, reason=reason, evidence=FILE)
    first = rows[0]["result"]
    reason = f"{first['verdict']}{': ' if first['reason'] else ''}{first['reason']}"[:LONGEST]
    return Check(id, Outcome.PASS, observed, expected, reason=reason, evidence=FILE)
