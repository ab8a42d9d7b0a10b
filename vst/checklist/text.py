"""The checklist as Markdown and as lines for a terminal; whatever a run says is shown as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote

from vst.checklist.evidence import UNSEALED, RunEvidence, Source
from vst.checklist.judge import Judged, State
from vst.harmless import markdown, visible

MARKS = {State.DONE: "[x]", State.NOT_APPLICABLE: "n/a"}
LONGEST_LINE = 160
LEGEND = (
    "`[x]` shown by evidence; `n/a` does not apply, for the reason given; everything else is not ticked: open, in "
    "part, failed, or refused because a bundle does not verify."
)


def as_markdown(rows: Sequence[Judged], runs: Sequence[RunEvidence], model: str, base: str | None = None) -> str:
    """The whole file. ``base`` is what links start with in front of a file's name; None makes them from each run's
    path, relative to the current directory.
    """
    where = {run.name: _base(run, base) for run in runs}
    lines = [f"# Day-0 checklist: {markdown(model) or 'a model without a name'}", "", _counts(rows), "", LEGEND, ""]
    lines += ["| | row | state | evidence |", "|---|---|---|---|"]
    lines += [_line(row, where) for row in rows]
    if told := [text for row in rows for text in row.contradictions]:
        lines += ["", "## Contradictions", "", *(f"- {markdown(text)}" for text in dict.fromkeys(told))]
    lines += ["", "## Runs", "", *(_run(run, where[run.name]) for run in runs), ""]
    return "\n".join(lines)


def as_lines(rows: Sequence[Judged]) -> list[str]:
    """One line for each row."""
    return [
        f"{MARKS.get(row.state, '[ ]'):>4}  {row.row.title:<34}{row.state.value:<16}{_cut(row.why)}" for row in rows
    ]


def _cut(text: str) -> str:
    line = " ".join(visible(text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _counts(rows: Sequence[Judged]) -> str:
    states = [row.state for row in rows]
    said = [f"{states.count(state)} {state.value}" for state in State if state in states]
    return f"{len(rows)} rows: {', '.join(said)}."


def _base(run: RunEvidence, base: str | None) -> str:
    return base if base is not None else f"{os.path.relpath(run.path)}/"


def _line(one: Judged, where: dict[str, str]) -> str:
    told = [markdown(one.why)] if one.why else []
    told += [_source(source, where) for source in one.sources]
    mark = MARKS.get(one.state, "[ ]")
    return f"| {mark} | **{one.row.title}** {one.row.means} | {one.state.value} | {'<br>'.join(told)} |"


def _source(source: Source, where: dict[str, str]) -> str:
    address = quote(f"{where[source.run]}{source.file}", safe="/._-")
    digest = f" `{source.sha256[:16]}`" if source.sha256 else ""
    reason = f": {markdown(source.reason, 200)}" if source.reason else ""
    check = markdown(source.check)
    return (
        f"{check} {source.outcome.value} ({markdown(source.run)}, [{markdown(source.file)}]({address}){digest}){reason}"
    )


def _run(run: RunEvidence, base: str) -> str:
    if run.broken or run.incomplete:
        return f"- {markdown(run.name)}: {'does not verify' if run.broken else 'not counted'}: " + markdown(
            run.broken or run.incomplete
        )
    digest = next((source.sha256 for source in run.sources if source.file == "verdict.json"), "")
    link = f"[verdict.json]({quote(base + 'verdict.json', safe='/._-')})"
    holds = markdown(run.holds or UNSEALED)
    return f"- {markdown(run.name)}: vLLM {markdown(run.vllm) or 'not asked'}, {link} `{digest}`; {holds}"
