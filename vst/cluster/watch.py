"""Waiting for the runs of a sweep: verdicts come from the disk, the scheduler only says when to stop waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from vst.cluster.job_states import JobState
from vst.cluster.outcome import Ending, no_verdict, read_ending
from vst.cluster.queue import Queue
from vst.cluster.sweep import HEARTBEAT_S, Run, Sweep

FASTEST_S, SLOWEST_S = 0.3, 2.0
GONE = JobState("GONE", "the scheduler knows nothing of it")


class Watch:
    """Keeps one sweep up to date until every run has ended."""

    def __init__(self, sweep: Sweep, queue: Queue, tell: Callable[[Run], None]) -> None:
        self._sweep, self._queue, self._tell = sweep, queue, tell
        self._over_since: dict[int, float] = {}
        self._written = 0.0

    def until_all_ended(self, deadline_s: float | None = None) -> None:
        """Submit, look and write until nothing is open; at most ``deadline_s`` seconds."""
        begun, pause = time.monotonic(), FASTEST_S
        while True:
            changed = self.step()
            if not any(self._sweep.unfinished()):
                return
            if deadline_s is not None and time.monotonic() - begun > deadline_s:
                return
            pause = FASTEST_S if changed else min(pause * 1.3, SLOWEST_S)
            time.sleep(pause)

    def until_all_submitted(self) -> None:
        """Submit everything, whatever becomes of it."""
        while self._queue.waiting:
            self.step()
            if self._queue.waiting:
                time.sleep(SLOWEST_S)

    def step(self) -> bool:
        """One look at everything; True when something changed."""
        changed = self._queue.advance()
        states = self._queue.states()
        for run in list(self._sweep.unfinished()):
            changed = self._look(run, states) or changed
        self._write(changed)
        return changed

    def _write(self, changed: bool) -> None:
        if changed or time.monotonic() - self._written > HEARTBEAT_S:
            self._sweep.write()
            self._written = time.monotonic()

    def _look(self, run: Run, states: Mapping[str, JobState] | None) -> bool:
        ending = read_ending(self._sweep.base(run), run.attempts_before)
        if ending is not None and not ending.interrupted:
            return self._end(run, ending)
        if states is None or run.job is None:
            return False
        state = state_of(run, states, self._sweep)
        if state is None:
            return False
        changed, run.scheduler = run.scheduler != str(state), str(state)
        if not state.over:
            self._over_since.pop(run.number, None)
            return changed
        since = self._over_since.setdefault(run.number, time.monotonic())
        if ending is None and time.monotonic() - since < self._queue.settle_s:
            return changed
        return self._end(run, last_word(self._sweep, run, state))

    def _end(self, run: Run, ending: Ending) -> bool:
        run.end(ending)
        self._tell(run)
        return True


def state_of(run: Run, states: Mapping[str, JobState], sweep: Sweep) -> JobState | None:
    """The state of a run's job; a job that nobody knows is over when it was seen before, or is overdue."""
    known = states.get(run.job or "")
    if known is not None:
        return known
    overdue = time.time() - (run.submitted or 0.0) > sweep.settings.get("unseen_s", 0.0)
    return GONE if run.scheduler is not None or overdue else None


def last_word(sweep: Sweep, run: Run, state: JobState) -> Ending:
    """The end of a run whose job is over: its verdict if there is one after all, and else that there is none."""
    found = read_ending(sweep.base(run), run.attempts_before)
    if found is not None and found.interrupted:
        return replace(found, reason=f"{found.reason}; its job {run.job}: {state}")
    return found or no_verdict(f"its job {run.job} is over: {state}; see {run.log}", state.cancelled)
