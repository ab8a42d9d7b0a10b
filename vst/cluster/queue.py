"""The interface of what runs jobs: SLURM and local processes behave alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from vst.cluster.job_states import JobState


class Queue(Protocol):
    """Takes the runs of a sweep and says which of their jobs go on."""

    settle_s: float
    """How long to wait for the files of a job that is over."""

    def advance(self) -> bool:
        """Start or submit what can be now; True when something changed."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether runs are left that were not submitted yet."""
        ...

    def states(self) -> Mapping[str, JobState] | None:
        """The states of the submitted jobs; None when nobody answers, or it is not yet time to ask again."""
        ...

    def cancel(self) -> None:
        """End everything that was submitted and is not over."""
        ...
