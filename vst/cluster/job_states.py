"""What SLURM says of jobs: ``squeue`` for those it still remembers, ``sacct`` for older ones where there is one.

The answer decides when to stop waiting for a verdict, and never what the verdict is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vst.cluster.clean_env import clean_env

UNFINISHED = (
    *("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT", "COMPLETING"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
)
COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class JobState:
    """A job's state in SLURM's word, with the reason or exit code that came with it."""

    word: str
    detail: str = ""

    @property
    def over(self) -> bool:
        return self.word not in UNFINISHED

    @property
    def cancelled(self) -> bool:
        return self.word == "CANCELLED"

    def __str__(self) -> str:
        return f"{self.word} ({self.detail})" if self.detail and self.detail != "None" else self.word


def parse(text: str) -> dict[str, JobState]:
    """Lines ``id|state|detail`` by job id; steps are left out, ``CANCELLED by 0`` is cancelled."""
    found = {}
    for line in text.splitlines():
        number, _, rest = line.partition("|")
        word, _, detail = rest.partition("|")
        if number.strip() and "." not in number and word.strip():
            found[number.strip()] = JobState(word.split()[0], detail.strip())
    return found


def squeue() -> dict[str, JobState] | None:
    """All jobs of this user that slurmctld still remembers; None when it does not answer."""
    # Not with -j: squeue fails when one that is asked for is forgotten already.
    text = ask(["squeue", "--noheader", "--all", "--array", "--states=all", "--me", "--format=%i|%T|%r"])
    return None if text is None else parse(text)


def sacct(jobs: Iterable[str]) -> dict[str, JobState]:
    """What accounting knows of these jobs; nothing where a site has none."""
    wanted = sorted({job.partition("_")[0] for job in jobs})
    if not wanted:
        return {}
    command = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,State,ExitCode"]
    text = ask([*command, "--jobs", ",".join(wanted)])
    return {} if text is None else parse(text)


def ask(command: list[str]) -> str | None:
    """The output of a command of SLURM; None when it fails or does not come back."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, env=clean_env(), check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def job_states(jobs: Iterable[str]) -> Mapping[str, JobState] | None:
    """The states of these jobs as far as they are known; None when slurmctld does not answer, so that nothing can be
    concluded from a job that is not there.
    """
    wanted = set(jobs)
    live = squeue()
    if live is None:
        return None
    forgotten = wanted - live.keys()
    return {**sacct(forgotten), **live} if forgotten else live
