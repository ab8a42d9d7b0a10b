"""Sections for what the higher lanes measured: cycles, drafts, pauses, failures, replicas.

What a check observed is shown as it stands; where it holds a row of numbers over the cycles, as a line too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from vst.report.material import Material
from vst.report.scales import Series, series

Table = tuple[tuple[Any, ...], ...]
MAX_ROWS = 200


@dataclass(frozen=True)
class Extra:
    """One section: facts, and perhaps a table and a line of numbers."""

    id: str
    title: str
    short: str
    text: str = ""
    pairs: tuple[tuple[str, Any], ...] = ()
    columns: tuple[str, ...] = ()
    rows: Table = ()
    series: Series | None = None
    caption: str = ""


SECTIONS = (
    ("cycles", "Cycles under load", "Cycles", ("cycles.*", "load.*", "memory.*")),
    ("drafts", "Draft", "Draft", ("draft.*",)),
    ("pauses", "Pausing, sleeping and waking", "Lifecycle", ("pause.*", "sleep.*", "wake.*", "lifecycle.*")),
    ("faults", "Failures on purpose", "Failures", ("fault.*", "recovery.*")),
    ("replicas", "Ranks and replicas", "Replicas", ("replicas.*",)),
)
"""Name, title, short title and the checks of each section, in the order of the page."""


def extras(material: Material) -> list[Extra]:
    """The sections that the run has evidence for."""
    found = []
    for id, title, short, patterns in SECTIONS:
        checks = [one for _, one in material.checks() if any(fnmatchcase(str(one.get("id")), p) for p in patterns)]
        if checks:
            found.append(_section(id, title, short, checks))
    return found


def _section(id: str, title: str, short: str, checks: list[Mapping[str, Any]]) -> Extra:
    rows = tuple(_row(check) for check in checks)
    table: Table = ()
    line, caption = None, ""
    columns: tuple[str, ...] = ("check", "outcome", "observed", "why")
    for check in checks:
        entries = _entries(check.get("observed"))
        if line is None and entries:
            line, caption = _line(entries)
        if not table and len(checks) == 1 and entries:
            columns, table = _table(entries)
    return Extra(id, title, short, columns=columns, rows=(table or rows)[:MAX_ROWS], series=line, caption=caption)


def _row(check: Mapping[str, Any]) -> tuple[Any, ...]:
    return check.get("id"), check.get("outcome"), check.get("observed"), check.get("reason") or "–"


def _entries(observed: Any) -> list[Mapping[str, Any]]:
    """The list of like objects in what a check observed: it itself, or the longest one inside of it."""
    inside = list(observed.values()) if isinstance(observed, Mapping) else []
    lists = [one for one in (observed, *inside) if isinstance(one, list) and one]
    whole = [one for one in lists if all(isinstance(entry, Mapping) for entry in one)]
    return max(whole, key=len, default=[])


def _table(entries: list[Mapping[str, Any]]) -> tuple[tuple[str, ...], Table]:
    keys = tuple(dict.fromkeys(str(key) for entry in entries[:MAX_ROWS] for key in entry))[:8]
    return keys, tuple(tuple(entry.get(key) for key in keys) for entry in entries[:MAX_ROWS])


def _line(entries: list[Mapping[str, Any]]) -> tuple[Series | None, str]:
    """The first number that every entry has and that changes from one to the next."""
    for key in dict.fromkeys(key for entry in entries for key in entry):
        values = list(_numbers(entries, key))
        if key not in ("cycle", "number", "seed") and len(values) == len(entries) and len(set(values)) > 1:
            good = [entry.get("equal", True) is not False for entry in entries]
            named = [(f"{n}", value, ok) for n, (value, ok) in enumerate(zip(values, good, strict=True), 1)]
            return series(named), f"{str(key).replace('_', ' ')}, one point for each entry"
    return None, ""


def _numbers(entries: list[Mapping[str, Any]], key: Any) -> Iterator[float]:
    for entry in entries:
        value = entry.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield float(value)
