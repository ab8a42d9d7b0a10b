"""From the shape of a job to what submitit gives to ``sbatch``, and what ``sbatch`` answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vst.cluster.clean_env import cleaned_environ
from vst.cluster.job import ClusterJob
from vst.cluster.job_states import ask
from vst.cluster.shape import SlurmShape
from vst.errors import ConfigError, TransportError

DEFAULT_ARRAY_SIZE = 1000
FULL = re.compile(r"MaxSubmit|MaxJobs|JobCountLimit|violates accounting/QOS policy|temporarily unable to accept job")
AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection (refused|reset)|Zero Bytes were transmitted|"
    r"Communication connection failure|Unable to establish|resource temporarily unavailable",
    re.IGNORECASE,
)


class QueueFull(TransportError):
    """The site's limit of jobs for this user is reached; some of ours, or of theirs, have to end first."""


class ControllerAway(TransportError):
    """slurmctld did not answer; it may be back soon."""


def parameters(shape: SlurmShape, worktree: str | None) -> dict[str, Any]:
    """The shape in submitit's names."""
    srun = ["--nodes=1", "--ntasks=1"]
    if shape.cpus_per_task is not None:
        srun.append(f"--cpus-per-task={shape.cpus_per_task}")  # srun does not inherit it since 22.05
    found: dict[str, Any] = {
        "job_name": shape.name,
        "time": shape.timeout_min,
        "nodes": shape.nodes,
        "ntasks_per_node": 1,
        "mem": None if shape.mem_gb is None else f"{round(shape.mem_gb * 1024)}M",
        "exclusive": shape.exclusive or None,
        "setup": [*_source_lines(worktree), *shape.setup] or None,
        "srun_args": [*srun, *shape.srun_args],
        "additional_parameters": {"requeue": True, **shape.additional_parameters},
    }
    same = (
        "partition account qos gpus_per_node gres cpus_per_task constraint nodelist exclude dependency comment "
        "mail_type mail_user array_parallelism signal_delay_s"
    )
    found |= {name: getattr(shape, name) for name in same.split()}
    return {name: value for name, value in found.items() if value is not None}


def _source_lines(worktree: str | None) -> list[str]:
    """The job imports from the snapshot, and from nothing that lies in the directory where the user happens to be."""
    if worktree is None:
        return []
    return [f"export PYTHONSAFEPATH=1 PYTHONPATH={shlex.quote(worktree)}"]


def executor(shape: SlurmShape, folder: Path, worktree: str | None) -> Any:
    """submitit's executor with the parameters of the shape; ConfigError where there is no SLURM."""
    import submitit

    folder.mkdir(parents=True, exist_ok=True)
    try:
        made = submitit.SlurmExecutor(folder, max_num_timeout=shape.requeues, python=shape.python)
    except RuntimeError as error:
        raise ConfigError(f"hydra/launcher=slurm: {error} Its commands must be in PATH") from error
    made.update_parameters(**parameters(shape, worktree))
    return made


def script(made: Any, count: int) -> str:
    """The text that would be given to ``sbatch`` for ``count`` runs."""
    if count > 1:
        made.parameters["map_count"] = count
    text: str = made._make_submission_file_text(made._submitit_command_str, "")
    made.parameters.pop("map_count", None)
    return text


def submit(made: Any, jobs: Sequence[ClusterJob]) -> list[str]:
    """Submit one array, or one plain job; the job numbers in the order of ``jobs``.

    Raises QueueFull and ControllerAway for what may change by itself, ConfigError for everything else.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        with cleaned_environ():
            return [str(job.job_id) for job in made.submit_array(list(jobs))]
    except (FailedJobError, FailedSubmissionError) as error:
        _sweep_up(made.folder)
        raise classify(str(error)) from error


def classify(text: str) -> ConfigError | TransportError:
    """The error that ``sbatch``'s answer means."""
    said = [line.strip() for line in text.splitlines() if "error:" in line] or [text.strip()]
    message = "; ".join(dict.fromkeys(line.partition("error:")[2].strip() or line for line in said))
    if FULL.search(message):
        return QueueFull(message)
    if AWAY.search(message):
        return ControllerAway(message)
    return ConfigError(f"sbatch refused: {message}")


def _sweep_up(folder: Path) -> None:
    """What submitit prepared for a submission that was refused."""
    for left in [*folder.glob(f"{'[0-9a-f]' * 32}.pkl"), *folder.glob(".submission_file_*.sh")]:
        if not left.is_symlink():
            left.unlink(missing_ok=True)


def array_limit(shape: SlurmShape) -> int:
    """The largest array that is submitted at once: the cluster's MaxArraySize, or less if the shape says so."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", ask(["scontrol", "show", "config"]) or "", re.MULTILINE)
    most = int(found.group(1)) if found else DEFAULT_ARRAY_SIZE
    return max(1, min(most, shape.array_size or most))
