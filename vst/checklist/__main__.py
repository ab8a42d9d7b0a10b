"""``python -m vst.checklist DIR… --model NAME``: fill the day-0 checklist from runs, after verifying each of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vst.checklist.evidence import RunEvidence, collect, read_all
from vst.checklist.judge import Judged, State, judge
from vst.checklist.text import as_lines, as_markdown
from vst.errors import ConfigError
from vst.harmless import visible
from vst.provenance.atomic import write_atomic
from vst.verdict import EXIT_CODES, EXIT_CONFIG, EXIT_PASS, Outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when every row is done or not applicable, 10 when one failed or was refused, else 12; 2 for usage."""
    parser = argparse.ArgumentParser(prog="python -m vst.checklist", description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="a run, a sweep, or a folder of runs")
    parser.add_argument(
        "--model", metavar="NAME", help="take only the runs of this model.name; needed when there are more"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the checklist as Markdown")
    given = parser.parse_args(argv)
    try:
        runs = of_one_model(read_all(collect(given.directories)), given.model)
        rows = judge(runs)
        if given.output is not None:
            write_atomic(given.output.absolute(), as_markdown(rows, runs, _name(runs, given.model)).encode())
    except (ConfigError, OSError) as error:
        print(f"vst.checklist: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG
    print("\n".join(as_lines(rows)))
    for text in dict.fromkeys(text for row in rows for text in row.contradictions):
        print(f"contradiction: {visible(text)}")
    return exit_code(rows)


def of_one_model(runs: list[RunEvidence], model: str | None) -> list[RunEvidence]:
    """The runs of one model, with all whose bundle does not hold: of which model those are is not known.

    ConfigError when they are of several models or layouts, or of none.
    """
    names = sorted({run.model for run in runs if run.model})
    if model is None and len(names) > 1:
        raise ConfigError(f"these are runs of {len(names)} models: {', '.join(names)}; choose one with --model")
    if model is not None and model not in names and not any(run.broken for run in runs):
        raise ConfigError(f"no run is of model {model}; there are: {', '.join(names) or 'none that name one'}")
    chosen = [run for run in runs if run.broken or run.incomplete or model is None or run.model == model]
    layouts = {run.layout for run in chosen if run.layout}
    if len(layouts) > 1:
        shown = ", ".join(f"{run.name}: {run.layout[:23]}…" for run in chosen if run.layout)
        raise ConfigError(f"the runs are of different layouts, so of different models under one name: {shown}")
    return chosen


def exit_code(rows: Sequence[Judged]) -> int:
    """The code that says how the checklist stands."""
    states = {row.state for row in rows}
    if states & {State.FAILED, State.REFUSED}:
        return EXIT_CODES[Outcome.FAIL]
    return EXIT_PASS if states <= {State.DONE, State.NOT_APPLICABLE} else EXIT_CODES[Outcome.INCONCLUSIVE]


def _name(runs: Sequence[RunEvidence], model: str | None) -> str:
    return model or next((run.model for run in runs if run.model), "")


if __name__ == "__main__":
    sys.exit(main())
