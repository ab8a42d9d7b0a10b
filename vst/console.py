"""What the user sees: the ladder as it goes, each check that did not pass and why, and where the evidence lies.

On a terminal the last line says what goes on now; everything above it stays. Elsewhere there are plain lines, and with
``console=json`` one JSON object for each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vst.harmless import plain as plain
from vst.progress import Rate, Transfer
from vst.verdict import LaneVerdict, Outcome, Verdict

STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.REFUSED: "red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.ERROR: "bold red",
    Outcome.NOT_APPLICABLE: "dim",
}
INDENT = " " * 10
Tell = Callable[..., None]


class Shown(Protocol):
    """What a run is shown on."""

    def say(self, text: str) -> None: ...

    def bytes(self, what: str, done: int, total: int) -> None: ...

    def lane(self, lane: LaneVerdict) -> None: ...

    def watch(self, state: Callable[[], str]) -> None: ...

    def end(self, verdict: Verdict, server: dict[str, Any], rundir: str) -> None: ...

    def close(self) -> None: ...


def make_console(kind: str = "auto", tell: Tell | None = None) -> Shown:
    """The console that ``console=kind`` asks for; steps and lanes are also told to ``tell``, the run's event log."""
    if kind == "json":
        from vst.console_json import JsonConsole

        return JsonConsole(tell)
    return RunConsole(tell, live=kind == "auto")


class QuietWhenCut(Console):
    """A reader that goes away (``| head``) ends what is shown, not the run."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


class RunConsole:
    """Plain lines that stay, and on a terminal one last line that does not; nothing is judged here."""

    def __init__(self, tell: Tell | None = None, live: bool = False) -> None:
        terminal = sys.stdout is not None and sys.stdout.isatty()
        width = None if terminal else 140
        self._console = QuietWhenCut(highlight=False, emoji=False, soft_wrap=not terminal, width=width)
        self._tell = tell or (lambda kind, **fields: None)
        self._begun = time.monotonic()
        self._rate = Rate()
        self._now = Now(self._begun)
        self._live = Live(self._now, console=self._console, refresh_per_second=4, transient=True)
        if live and terminal:
            self._live.start()

    def watch(self, state: Callable[[], str]) -> None:
        """Ask ``state`` for the server's state whenever the last line is drawn."""
        self._now.state = state

    def close(self) -> None:
        """Take the last line away; safe to repeat."""
        self._live.stop()

    def say(self, text: str) -> None:
        self._tell("step", text=text)
        self._now.step(text)
        shown = escape(plain(text)).replace("\n", f"\n{INDENT}")
        self._console.print(f"[dim]{time.monotonic() - self._begun:6.1f} s[/dim]  {shown}")

    def bytes(self, what: str, done: int, total: int) -> None:
        """Progress of a transfer: always in the last line, as a line of its own at most once in two seconds."""
        transfer = self._rate.at(what, done, total)
        self._now.transfer = transfer
        if self._rate.due():
            self._console.print(f"[dim]{time.monotonic() - self._begun:6.1f} s[/dim]  {escape(str(transfer))}")

    def lane(self, lane: LaneVerdict) -> None:
        self._tell("lane", lane=lane.lane, verdict=lane.word)
        self._now.done.append(f"{plain(lane.lane, 20)} {'✓' if lane.passed else '✗'}")
        style = "bold green" if lane.passed else "bold red"
        passed = sum(check.outcome is Outcome.PASS for check in lane.checks)
        cause = f", {lane.cause.value}" if lane.cause else ""
        line = Text(f"{plain(lane.lane, 40):>8}  {lane.word}{cause}", style=style)
        line.append(f"  {passed} of {len(lane.checks)} checks passed", style="not bold default")
        self._console.print(line)
        for check in lane.checks:
            for warning in check.warnings:
                shown = escape(plain(warning)).replace("\n", f"\n{INDENT}")
                self._console.print(f"{INDENT}[yellow]warning[/yellow] {escape(plain(check.id))}: {shown}")

    def end(self, verdict: Verdict, server: dict[str, Any], rundir: str) -> None:
        """The table of all checks, the covered share, the server's state, the verdict and the run directory."""
        self.close()
        table = Table(show_edge=False, pad_edge=False, box=None)
        for title in ("lane", "check", "outcome", "reason"):
            table.add_column(title, overflow="fold", no_wrap=title != "reason")
        for lane in verdict.lanes:
            for check in lane.checks:
                outcome = Text(check.outcome.value, style=STYLES[check.outcome])
                table.add_row(Text(plain(lane.lane, 40)), Text(plain(check.id, 80)), outcome, Text(plain(check.reason)))
        self._console.print(table)
        if verdict.covered:
            covered = verdict.covered
            self._console.print(f"covered by controls: {covered['tensors']} tensors, {covered['bytes']} bytes")
            if "experts" in covered:
                self._console.print(f"reached by the probes: {covered['experts']} expert families")
        for one in server.get("servers", [{"server": "server", **server}]):
            left = ", ".join(f"{key} {plain(one[key])}" for key in ("state", "holds", "left"))
            self._console.print(escape(f"{one['server']}: {left}"))
        style = "bold green" if verdict.passed else "bold red"
        cause = f" ({verdict.cause.value})" if verdict.cause else ""
        self._console.print(
            Text(f"{verdict.word}{cause}  lane {verdict.lane}, exit code {verdict.exit_code}", style=style)
        )
        self._console.print(f"evidence: {escape(plain(rundir, 4096))}", soft_wrap=True)
        if os.path.exists(os.path.join(rundir, "report.html")):
            self._console.print(f"report:   {escape(plain(rundir, 4096))}/report.html", soft_wrap=True)


class Now:
    """The last line: the lanes so far, the step that goes on and for how long, the server's state, bytes and rate."""

    def __init__(self, begun: float) -> None:
        self.done: list[str] = []
        self.state: Callable[[], str] = lambda: ""
        self.transfer: Transfer | None = None
        self._begun, self._since, self._text = begun, begun, "starting"

    def step(self, text: str) -> None:
        self._text, self._since, self.transfer = plain(text, 100).split("\n")[0], time.monotonic(), None

    def __rich__(self) -> Text:
        now = time.monotonic()
        state = self.state()
        parts = [f"{self._text}, {now - self._since:.0f} s", f"server {state}" if state else ""]
        if self.transfer is not None and not self.transfer.complete:
            parts.append(str(self.transfer))
        parts.append(" ".join(self.done))
        shown = "  ·  ".join(part for part in [f"{now - self._begun:6.1f} s", *parts] if part)
        return Text(shown, style="reverse", no_wrap=True, overflow="ellipsis")
