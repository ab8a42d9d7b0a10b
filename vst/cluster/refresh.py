"""One look at a sweep by somebody who did not launch it."""

from __future__ import annotations

from collections.abc import Sequence

from vst.cluster.job_states import job_states
from vst.cluster.outcome import Ending, never_sent, no_verdict, read_ending
from vst.cluster.sweep import Run, Sweep
from vst.cluster.watch import last_word, state_of


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
