"""The page and the table of a sweep, written when its runs have ended."""

from __future__ import annotations

from collections.abc import Callable

from vst.cluster.sweep import Sweep


def draw_pages(sweep: Sweep, say: Callable[[str], None]) -> None:
    """Write ``sweep.html`` and ``sweep.csv``; what cannot be drawn costs a page, never the verdicts."""
    try:
        from vst.report.sweep_page import write_sweep_files

        say(f"report: {write_sweep_files(sweep)}")
    except Exception as error:
        again = f"python -m vst.report {sweep.path}"
        say(f"sweep.html was not drawn: {type(error).__name__}: {error}; draw it with: {again}")
