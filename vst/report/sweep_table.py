"""A sweep as rows of numbers: what was swept, how each run ended, what it measured; pure functions over its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.cluster.sweep import Run, Sweep
from vst.provenance.rundir import DRAWN
from vst.report.material import read_object

NUMBERS = (
    ("seconds", "run time", "s"),
    ("largest", "largest difference of an arrival", ""),
    ("floor", "noise floor", ""),
    ("covered", "covered share of bytes", ""),
    ("score", "evaluation score", ""),
)
"""The numbers of a run: name, title, unit."""


@dataclass(frozen=True)
class SweptRun:
    """One run of a sweep: its swept keys, its ending and its numbers; a number that it does not have is None.

    ``page`` is where its link leads: to its page, to its directory when it has none, nowhere when that is not there.
    """

    number: int
    keys: Mapping[str, str]
    verdict: str
    cause: str
    exit_code: int | None
    reason: str
    server: str
    evidence: str
    page: str
    numbers: Mapping[str, float | None]

    @property
    def tone(self) -> str:
        """The class that gives a cell its colour."""
        if self.exit_code is None:
            return "open"
        return "pass" if self.exit_code == 0 else self.cause or "error"


def swept_runs(sweep: Sweep) -> list[SweptRun]:
    """All runs of a sweep as its page shows them."""
    return [_swept(sweep, run) for run in sweep.runs]


def _swept(sweep: Sweep, run: Run) -> SweptRun:
    ending = run.ending
    place = Path(ending.evidence) if ending is not None and ending.evidence else sweep.base(run)
    keys = dict(_pair(word) for word in run.overrides)
    return SweptRun(
        number=run.number,
        keys=keys,
        verdict=ending.verdict if ending else "not ended",
        cause=(ending.cause or "") if ending else "",
        exit_code=ending.exit_code if ending else None,
        reason=ending.reason if ending else run.scheduler or run.state,
        server=(ending.server or "") if ending else "",
        evidence=_relative(place, sweep.path),
        page=_page(place, sweep.path),
        numbers=numbers(place),
    )


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.lstrip("+~").partition("=")
    return key, value


def _relative(place: Path, root: Path) -> str:
    return str(place.relative_to(root)) if place.is_relative_to(root) else place.name


def _page(place: Path, root: Path) -> str:
    found = next((one for one in (place / DRAWN[0], place) if one.exists()), None)
    return "" if found is None or not found.is_relative_to(root) else str(found.relative_to(root))


def numbers(place: Path) -> dict[str, float | None]:
    """What the run in ``place`` measured, from its verdict and ``run.json``."""
    verdict, run = read_object(place / "verdict.json") or {}, read_object(place / "run.json") or {}
    checks = [check for lane in verdict.get("lanes") or () for check in lane.get("checks") or ()]
    covered = verdict.get("covered")
    return {
        "seconds": _number(run.get("seconds")) if run.get("state") == "complete" else None,
        "largest": _largest(checks),
        "floor": _number(verdict.get("noise_floor")),
        "covered": _number(covered.get("byte_share")) if isinstance(covered, Mapping) else None,
        "score": _score(checks),
    }


def _largest(checks: Sequence[Mapping[str, Any]]) -> float | None:
    """The largest difference of all arrivals at B, None where there was none."""
    found = [
        value
        for check in checks
        if check.get("id") in ("transition.to_b", "transition.final") and isinstance(check.get("observed"), list)
        for one in check["observed"]
        if isinstance(one, Mapping) and (value := _number(one.get("largest_difference"))) is not None
    ]
    return max(found, default=None)


def _score(checks: Sequence[Mapping[str, Any]]) -> float | None:
    """The score after the change, as ``eval.paired`` observed it."""
    for check in checks:
        observed = check.get("observed")
        if check.get("id") == "eval.paired" and isinstance(observed, Mapping):
            return next(
                (
                    value
                    for key in ("after", "accuracy_after", "score")
                    if (value := _number(observed.get(key))) is not None
                ),
                None,
            )
    return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def swept_keys(runs: Sequence[SweptRun]) -> list[str]:
    """The keys whose value is not the same in all runs, in the order in which they were given."""
    keys = dict.fromkeys(key for run in runs for key in run.keys)
    return [key for key in keys if len({run.keys.get(key) for run in runs}) > 1]


@dataclass(frozen=True)
class Matrix:
    """Two keys against each other; ``cells`` maps (row, column) to the runs that have these values."""

    row_key: str
    column_key: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], tuple[SweptRun, ...]]


ROWS_FIRST = ("checkpoint", "checkpoint.path", "checkpoint.name", "model", "model.path")


def matrix(runs: Sequence[SweptRun]) -> Matrix:
    """Checkpoints against lanes where those were swept, otherwise the first two keys that were."""
    keys = swept_keys(runs)
    row_key = next((key for key in ROWS_FIRST if key in keys), keys[0] if keys else "run")
    rest = [key for key in keys if key != row_key]
    column_key = "lane" if "lane" in rest else rest[0] if rest else ""
    cells: dict[tuple[str, str], tuple[SweptRun, ...]] = {}
    for run in runs:
        at = (run.keys.get(row_key, str(run.number)), run.keys.get(column_key, "") if column_key else "verdict")
        cells[at] = (*cells.get(at, ()), run)
    return Matrix(
        row_key,
        column_key,
        rows=tuple(dict.fromkeys(row for row, _ in cells)),
        columns=tuple(dict.fromkeys(column for _, column in cells)),
        cells=cells,
    )


SEVERITY = {"pass": 0, "open": 1, "inconclusive": 2, "refused": 3, "error": 4, "fail": 5}


def worst_of(runs: Sequence[SweptRun]) -> SweptRun:
    """The run of a cell that counts."""
    return max(runs, key=lambda run: SEVERITY.get(run.tone, 4))


def trends(runs: Sequence[SweptRun]) -> Iterator[tuple[str, str, list[tuple[str, float, bool]]]]:
    """For every number that at least three runs have: title, unit, and the labelled values in the order of the runs."""
    row_key = matrix(runs).row_key
    for name, title, unit in NUMBERS:
        values = [
            (run.keys.get(row_key, str(run.number)), value, run.exit_code == 0)
            for run in runs
            if (value := run.numbers.get(name)) is not None
        ]
        if len(values) >= 3 and len({value for _, value, _ in values}) > 1:
            yield title, unit, values
