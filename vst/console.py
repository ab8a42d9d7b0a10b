"""What the user sees: the ladder as it goes, each check that did not pass and why, and where the evidence lies."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vst.verdict import LaneVerdict, Outcome, Verdict

STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.REFUSED: "red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.ERROR: "bold red",
    Outcome.NOT_APPLICABLE: "dim",
}
LONGEST = 600


def plain(value: Any, longest: int = LONGEST) -> str:
    """Any text as one that can do nothing to a terminal: control characters shown, length bounded."""
    text = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in str(value))
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters, whole in verdict.json)"


class QuietWhenCut(Console):
    """A reader that goes away (``| head``) ends what is shown, not the run."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


class RunConsole:
    """Plain lines that stay; nothing is judged here."""

    def __init__(self) -> None:
        terminal = sys.stdout is not None and sys.stdout.isatty()
        width = None if terminal else 140
        self._console = QuietWhenCut(highlight=False, emoji=False, soft_wrap=not terminal, width=width)
        self._begun = time.monotonic()
        self._told = 0.0

    def say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._begun:6.1f} s[/dim]  {escape(plain(text))}")

    def bytes(self, what: str, done: int, total: int) -> None:
        """Progress of a transfer, at most once in two seconds; short ones are not shown."""
        now = time.monotonic()
        if done == total or self._told == 0.0 or now - self._told < 2.0:
            self._told = self._told or now
            self._mark = getattr(self, "_mark", (now, done))
            self._told, self._mark = (0.0, (now, 0)) if done == total else (self._told, self._mark)
            return
        rate = (done - self._mark[1]) / max(now - self._mark[0], 1e-9)
        self._told, self._mark = now, (now, done)
        self.say(f"{what} {done / 1e6:,.1f} of {total / 1e6:,.1f} MB, {rate / 1e6:,.1f} MB/s")

    def lane(self, lane: LaneVerdict) -> None:
        style = "bold green" if lane.passed else "bold red"
        passed = sum(check.outcome is Outcome.PASS for check in lane.checks)
        cause = f", {lane.cause.value}" if lane.cause else ""
        line = Text(f"{lane.lane:>8}  {lane.word}{cause}", style=style)
        line.append(f"  {passed} of {len(lane.checks)} checks passed", style="not bold default")
        self._console.print(line)
        for check in lane.checks:
            for warning in check.warnings:
                self._console.print(f"          [yellow]warning[/yellow] {check.id}: {escape(plain(warning))}")

    def end(self, verdict: Verdict, server: dict[str, Any], rundir: str) -> None:
        """The table of all checks, the covered share, the server's state, the verdict and the run directory."""
        table = Table(show_edge=False, pad_edge=False, box=None)
        for title in ("lane", "check", "outcome", "reason"):
            table.add_column(title, overflow="fold", no_wrap=title != "reason")
        for lane in verdict.lanes:
            for check in lane.checks:
                outcome = Text(check.outcome.value, style=STYLES[check.outcome])
                table.add_row(lane.lane, check.id, outcome, Text(plain(check.reason)))
        self._console.print(table)
        if verdict.covered:
            covered = verdict.covered
            self._console.print(f"covered by controls: {covered['tensors']} tensors, {covered['bytes']} bytes")
        for one in server.get("servers", [{"server": "server", **server}]):
            left = ", ".join(f"{key} {plain(one[key])}" for key in ("state", "holds", "left"))
            self._console.print(escape(f"{one['server']}: {left}"))
        style = "bold green" if verdict.passed else "bold red"
        cause = f" ({verdict.cause.value})" if verdict.cause else ""
        self._console.print(
            Text(f"{verdict.word}{cause}  lane {verdict.lane}, exit code {verdict.exit_code}", style=style)
        )
        self._console.print(f"evidence: {escape(plain(rundir, 4096))}", soft_wrap=True)
