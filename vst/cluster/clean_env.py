"""The environment for SLURM's commands: without what an outer job or a user's defaults would slip into them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

FOREIGN = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SUBMITIT_")
KEPT = "SLURM_CONF"


def clean_env() -> dict[str, str]:
    """This process's environment without SLURM's variables, but with the one that says where its configuration is."""
    return {key: value for key, value in os.environ.items() if key == KEPT or not key.startswith(FOREIGN)}


@contextmanager
def cleaned_environ() -> Iterator[None]:
    """``clean_env`` as this process's environment, for submitit, which gives its own to ``sbatch``."""
    before = dict(os.environ)
    kept = clean_env()
    for key in before.keys() - kept.keys():
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(before)
