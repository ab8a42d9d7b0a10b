"""How a sweep or a run goes on, from its files: ``python -m vst.status DIR`` on any machine that sees the directory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vst.attempt import RUN_FILE
from vst.cluster.job_states import job_states
from vst.cluster.outcome import Ending, never_sent, no_verdict, read_ending
from vst.cluster.sweep import NAME, Run, Sweep
from vst.cluster.table import SweepConsole
from vst.cluster.watch import last_word, state_of
from vst.errors import ConfigError
from vst.verdict import EXIT_CODES, EXIT_CONFIG, Outcome

NOT_ENDED = EXIT_CODES[Outcome.INCONCLUSIVE]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; exit code 0 only if everything passed, 12 while something has not ended, else the worst."""
    parser = argparse.ArgumentParser(prog="python -m vst.status", description=__doc__)
    parser.add_argument("directory", type=Path, help="of a sweep (with sweep.json) or of one run (with run.json)")
    path = parser.parse_args(argv).directory.expanduser().absolute()
    try:
        return sweep_status(path) if (path / NAME).exists() else run_status(path)
    except (ConfigError, OSError) as error:
        print(f"vst: {error}", file=sys.stderr)
        return EXIT_CONFIG


def sweep_status(path: Path) -> int:
    """Refresh ``sweep.json``, unless a launcher that lives does that, and show it."""
    sweep = Sweep.read(path)
    watched = sweep.watched_elsewhere()
    refresh(sweep)
    if not watched:
        bury_orphans(sweep)
        sweep.watcher = None
        sweep.write()
    SweepConsole().table(sweep)
    return NOT_ENDED if sweep.exit_code is None else sweep.exit_code


def refresh(sweep: Sweep) -> None:
    """Look at the disk for every run, and ask the scheduler about those that have no verdict there."""
    for run in sweep.runs:
        found = read_ending(sweep.base(run), run.attempts_before) if run.state != "skipped" else None
        # A verdict that came after all replaces the note that there was none.
        if found is not None and (not found.interrupted or without_verdict(run.ending)):
            run.end(found)
    asked = [run for run in sweep.runs if run.job and (run.open or without_verdict(run.ending))]
    if asked and sweep.launcher == "slurm":
        _ask(sweep, asked)


def bury_orphans(sweep: Sweep) -> None:
    """Without its launcher nothing more is submitted, and local processes have ended with it."""
    for run in list(sweep.unfinished()):
        if run.job is None:
            run.end(never_sent("the launcher ended before"))
        elif sweep.launcher == "local":
            left = read_ending(sweep.base(run), run.attempts_before)
            run.end(left or no_verdict("its launcher ended and took it along", cancelled=True))


def without_verdict(ending: Ending | None) -> bool:
    """Whether it was concluded from a scheduler's silence that there is no verdict; one may have come since."""
    return ending is not None and ending.evidence is None


def _ask(sweep: Sweep, runs: Sequence[Run]) -> None:
    states = job_states(run.job for run in runs if run.job)
    for run in runs:
        state = None if states is None else state_of(run, states, sweep)
        if state is None:
            continue
        run.scheduler = str(state)
        if state.over:
            run.end(last_word(sweep, run, state))
        else:
            run.state, run.ending = "submitted", None


def run_status(path: Path) -> int:
    """Show one run that is no part of a sweep."""
    if not (path / RUN_FILE).exists():
        raise ConfigError(f"{path} holds neither {NAME} nor {RUN_FILE}")
    ending = read_ending(path)
    print(f"{ending.verdict}  exit code {ending.exit_code}  {ending.reason}" if ending else "not ended")
    return NOT_ENDED if ending is None else ending.exit_code


if __name__ == "__main__":
    sys.exit(main())
