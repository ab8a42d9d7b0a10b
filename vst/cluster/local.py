"""Runs as processes of this machine, a bounded number at once, each with everything it started ended when we end.

submitit's local executor is not used: it starts all at once, gives a run one second to end, and hides the GPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from vst.cluster.job_states import JobState
from vst.cluster.shape import LocalShape
from vst.cluster.sweep import LAUNCH_DIR, Run, Sweep
from vst.lifeline import guarded
from vst.verdict import EXIT_INTERRUPTED, EXIT_TERMINATED


class LocalQueue:
    """The processes of one sweep; each has its own session, so that Ctrl-C reaches them only through ``cancel``."""

    settle_s = 0.0

    def __init__(self, shape: LocalShape, sweep: Sweep, worktree: str | None, say: Callable[[str], None]) -> None:
        self._shape, self._sweep, self._say = shape, sweep, say
        self._source = {"PYTHONSAFEPATH": "1", "PYTHONPATH": worktree} if worktree else {}
        self._unsent: list[Run] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, runs: Sequence[Run]) -> None:
        """Runs to start, in this order."""
        self._unsent += runs

    @property
    def waiting(self) -> bool:
        return bool(self._unsent)

    def advance(self) -> bool:
        changed = False
        while self._unsent and self._running() < self._shape.parallel:
            self._start(self._unsent.pop(0))
            changed = True
        return changed

    def _running(self) -> int:
        return sum(process.poll() is None for process in self._processes.values())

    def _start(self, run: Run) -> None:
        run.log = f"{LAUNCH_DIR}/run-{run.number}.log"
        command = self.command(run)
        with (self._sweep.path / run.log).open("ab") as out:
            process = subprocess.Popen(
                guarded(command),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env={**os.environ, **self._source},
                start_new_session=True,
            )
        run.job, run.state, run.submitted = f"{os.uname().nodename}-{process.pid}", "submitted", time.time()
        self._processes[run.job] = process
        self._say(f"run {run.number} started: {' '.join(run.overrides)}")

    def command(self, run: Run) -> list[str]:
        python = self._shape.python or sys.executable
        return [python, "-u", "-m", "vst.cluster.job", str(self._sweep.path / run.spec)]

    def states(self) -> Mapping[str, JobState] | None:
        return {job: _state(process.poll()) for job, process in self._processes.items()}

    def cancel(self) -> None:
        """Ask every process tree to end; the guard kills what has not ended after its grace."""
        self._unsent.clear()
        for process in self._processes.values():
            if process.poll() is None and process.stdin is not None:
                process.stdin.close()


def _state(code: int | None) -> JobState:
    if code is None:
        return JobState("RUNNING")
    ended_by_signal = code < 0 or code in (EXIT_INTERRUPTED, EXIT_TERMINATED)
    return JobState("CANCELLED" if ended_by_signal else "COMPLETED" if code == 0 else "FAILED", f"exit code {code}")
