"""``sweep.html`` and ``sweep.csv``: what a sweep found, for people and for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vst
from vst.cluster.sweep import Sweep
from vst.harmless import csv_cell
from vst.provenance.atomic import write_atomic
from vst.report.files import encoded
from vst.report.scales import series
from vst.report.sweep_table import NUMBERS, SweptRun, matrix, swept_keys, swept_runs, trends, worst_of
from vst.report.templating import environment

PAGE, TABLE = "sweep.html", "sweep.csv"
COLUMNS = ("verdict", "cause", "exit_code", "reason", "server", "evidence")


def write_sweep_files(sweep: Sweep) -> Path:
    """Write both files beside ``sweep.json``; the path of the page."""
    runs = swept_runs(sweep)
    write_atomic(sweep.path / TABLE, encoded(as_csv(runs)))
    write_atomic(sweep.path / PAGE, encoded(draw(sweep, runs)))
    return sweep.path / PAGE


def as_csv(runs: Sequence[SweptRun]) -> str:
    """One line for each run: number, swept keys, ending, numbers."""
    keys = list(dict.fromkeys(key for run in runs for key in run.keys))
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["run", *map(csv_cell, keys), *COLUMNS, *(name for name, _, _ in NUMBERS)])
    for run in runs:
        cells = [run.number, *(run.keys.get(key, "") for key in keys), *(getattr(run, name) for name in COLUMNS)]
        writer.writerow([csv_cell("" if cell is None else cell) for cell in (*cells, *run.numbers.values())])
    return out.getvalue()


def draw(sweep: Sweep, runs: Sequence[SweptRun]) -> str:
    """The page as HTML."""
    keys, grid = swept_keys(runs), matrix(runs)
    passed = sum(run.exit_code == 0 for run in runs)
    shared = {key: value for run in runs[:1] for key, value in run.keys.items() if key not in keys}
    values: dict[str, Any] = {
        "sweep": sweep, "runs": runs, "keys": keys, "grid": grid, "worst_of": worst_of, "passed": passed,
        "open": sum(run.exit_code is None for run in runs), "shared": shared, "version": vst.__version__,
        "numbers": [one for one in NUMBERS if any(run.numbers.get(one[0]) is not None for run in runs)],
        "trends": [(title, line) for title, unit, found in trends(runs) if (line := series(found, unit)) is not None],
        "outcomes": [tone for tone in ("pass", "fail", "error", "refused", "inconclusive", "open")
                     if any(run.tone == tone for run in runs)],
    }  # fmt: skip
    return environment().get_template("sweep.html.j2").render(**values)
