"""Runs as SLURM jobs: submitted in arrays, asked about, cancelled."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vst.cluster import sbatch
from vst.cluster.clean_env import clean_env
from vst.cluster.job import ClusterJob
from vst.cluster.job_states import COMMAND_TIMEOUT_S, JobState, job_states
from vst.cluster.shape import SlurmShape
from vst.cluster.sweep import Run, Sweep
from vst.early_signals import postponed
from vst.errors import TransportError

FOLDER = ".submitit"
FIRST_POLL_S = 2.0


class SlurmQueue:
    """The jobs of one sweep. A full queue is met with smaller arrays, it and an absent controller with patience."""

    def __init__(self, shape: SlurmShape, sweep: Sweep, worktree: str | None, say: Callable[[str], None]) -> None:
        self.settle_s = shape.settle_s
        self._shape, self._sweep, self._say = shape, sweep, say
        self._executor = sbatch.executor(shape, sweep.path / FOLDER, worktree)
        self._unsent: list[Run] = []
        self._chunk = 1
        self._retry_at = self._ask_at = 0.0
        self._interval = min(FIRST_POLL_S, shape.poll_s)
        self._stuck_since: float | None = None

    def add(self, runs: Sequence[Run]) -> None:
        """Runs to submit, in this order."""
        self._unsent += runs
        self._chunk = sbatch.array_limit(self._shape)

    @property
    def waiting(self) -> bool:
        return bool(self._unsent)

    def advance(self) -> bool:
        changed = False
        while self._unsent and time.monotonic() >= self._retry_at:
            chunk = self._unsent[: self._chunk]
            try:
                # A job whose number nobody noted could not be cancelled.
                with postponed((signal.SIGINT, signal.SIGTERM)):
                    self._submit(chunk)
            except sbatch.QueueFull as full:
                self._meet_limit(full, len(chunk))
            except sbatch.ControllerAway as away:
                self._later(away)
            else:
                changed = True
        return changed

    def _submit(self, chunk: Sequence[Run]) -> None:
        numbers = sbatch.submit(self._executor, [ClusterJob(str(self._sweep.path / run.spec)) for run in chunk])
        for run, number in zip(chunk, numbers, strict=True):
            run.job, run.state, run.submitted = number, "submitted", time.time()
            run.log = f"{FOLDER}/{number}_0_log.err"
        self._sweep.write()
        del self._unsent[: len(chunk)]
        self._stuck_since, self._ask_at, self._interval = None, 0.0, min(FIRST_POLL_S, self._shape.poll_s)
        ids = numbers[0].partition("_")[0]
        self._say(f"submitted {len(chunk)} run(s) as job {ids}, {len(self._unsent)} to go")

    def _meet_limit(self, full: sbatch.QueueFull, size: int) -> None:
        if size > 1:
            self._chunk = size // 2
            return
        self._later(full)

    def _later(self, reason: TransportError) -> None:
        now = time.monotonic()
        if self._stuck_since is None:
            self._stuck_since = now
            self._say(f"{len(self._unsent)} run(s) wait to be submitted: {reason}")
        # As long as jobs of ours are under way they will make room; only then is the limit one of time.
        under_way = any(run.state == "submitted" for run in self._sweep.runs)
        full = isinstance(reason, sbatch.QueueFull)
        if now - self._stuck_since > self._shape.submit_timeout_s and not (full and under_way):
            raise TransportError(
                f"{len(self._unsent)} of {len(self._sweep.runs)} run(s) could not be submitted within "
                f"{self._shape.submit_timeout_s:g} s: {reason}"
            )
        self._retry_at = now + self._shape.retry_s

    def states(self) -> Mapping[str, JobState] | None:
        if time.monotonic() < self._ask_at:
            return None
        found = job_states(run.job for run in self._sweep.unfinished() if run.job)
        self._ask_at = time.monotonic() + self._interval
        self._interval = min(self._interval * 1.5, self._shape.poll_s)
        return found

    def cancel(self) -> None:
        jobs = [run.job for run in self._sweep.unfinished() if run.job]
        self._unsent.clear()
        self._ask_at, self._interval = 0.0, FIRST_POLL_S
        if not jobs:
            return
        command = ["scancel", *jobs]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, env=clean_env(), check=False
            )
            problem = done.stderr.strip() if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        word = f"NOT cancelled, do it by hand ({problem})" if problem else "cancelled"
        self._say(f"{word}: job(s) {' '.join(jobs)}")


def write_scripts(shape: SlurmShape, sweep: Sweep, folder: Path, worktree: str | None) -> list[Path]:
    """The scripts that would be submitted, one per array, in ``folder``."""
    made: Any = sbatch.executor(shape, sweep.path / FOLDER, worktree)
    runs, limit, written = list(sweep.unfinished()), sbatch.array_limit(shape), []
    for number, start in enumerate(range(0, len(runs), limit)):
        path = folder / f"submission-{number}.sh"
        path.write_text(sbatch.script(made, len(runs[start : start + limit])), encoding="utf-8")
        written.append(path)
    return written
