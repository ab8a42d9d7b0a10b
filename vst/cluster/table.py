"""What a sweep shows: one line per run while it goes on, and the table of verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vst.cluster.sweep import Run, Sweep
from vst.harmless import plain
from vst.provenance.encoding import utc_now

LONGEST = 400


class SweepShown(Protocol):
    """What a sweep is shown on."""

    def say(self, text: str) -> None: ...

    def ended(self, run: Run) -> None: ...

    def table(self, sweep: Sweep) -> None: ...


def make_sweep_console(kind: str) -> SweepShown:
    """The console that ``console=kind`` asks for."""
    return JsonSweepConsole() if kind == "json" else SweepConsole()


class JsonSweepConsole:
    """One JSON object a line: the events ``step``, ``run`` when one has ended, and ``sweep`` at the end."""

    def say(self, text: str) -> None:
        self._line("step", text=text)

    def ended(self, run: Run) -> None:
        self._line("run", **asdict(run))

    def table(self, sweep: Sweep) -> None:
        runs = [asdict(run) for run in sweep.runs]
        self._line("sweep", directory=str(sweep.path), exit_code=sweep.exit_code, runs=runs)

    def _line(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, "utc": utc_now(), **fields}, default=str), flush=True)


class SweepConsole:
    """Plain lines and one table; nothing is judged here."""

    def __init__(self) -> None:
        self._console = Console(
            highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 160
        )

    def say(self, text: str) -> None:
        self._console.print(Text(plain(text)))

    def ended(self, run: Run) -> None:
        reason = f"  {plain(run.ending.reason, LONGEST)}" if run.ending else ""
        self._console.print(Text.assemble(f"run {run.number}  ", _verdict(run), reason))

    def table(self, sweep: Sweep) -> None:
        """Every run with its verdict, its reason and where its evidence lies."""
        same = common(sweep.runs)
        table = Table(show_edge=False, pad_edge=False, box=None)
        for title in ("run", "overrides", "verdict", "code", "reason", "evidence"):
            table.add_column(title, overflow="fold")
        for run in sweep.runs:
            ending = run.ending
            code = "" if ending is None else str(ending.exit_code)
            reason = run.scheduler or run.state if ending is None else plain(ending.reason, LONGEST)
            where = run.directory if ending is None or ending.evidence is None else ending.evidence
            if where.startswith(f"{sweep.path}/"):
                where = where[len(str(sweep.path)) + 1 :]
            words = Text(plain(" ".join(word for word in run.overrides if word not in same), LONGEST))
            table.add_row(str(run.number), words, _verdict(run), code, Text(plain(reason)), Text(plain(where)))
        self._console.print(table)
        if same:
            self._console.print(Text(f"all with {plain(' '.join(same))}"), soft_wrap=True)
        self._console.print(_summary(sweep), soft_wrap=True)


def common(runs: Sequence[Run]) -> list[str]:
    """The overrides that all runs share: they say nothing about the differences in a table."""
    return [word for word in runs[0].overrides if all(word in run.overrides for run in runs)] if runs else []


def _verdict(run: Run) -> Text:
    if run.ending is None:
        return Text("not ended", style="yellow")
    word = f"{run.ending.verdict}, skipped" if run.state == "skipped" else run.ending.verdict
    return Text(plain(word, 40), style="bold green" if run.ending.passed else "bold red")


def _summary(sweep: Sweep) -> Text:
    passed = sum(run.ending is not None and run.ending.passed for run in sweep.runs)
    open_runs = sum(run.ending is None for run in sweep.runs)
    code = sweep.exit_code
    style = "bold green" if code == 0 else "yellow" if code is None else "bold red"
    end = f"exit code {code}" if code is not None else f"{open_runs} not ended"
    return Text(f"{passed} of {len(sweep.runs)} runs passed, {end}  {sweep.path}", style=style)
