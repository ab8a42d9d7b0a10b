"""What runs inside a job: take the next attempt directory, run, and end with the run's own exit code.

The exit code is not swallowed, so that a run that failed is a failed job for everyone who asks the scheduler.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from vst.attempt import begun_transaction, claim
from vst.cluster.spec import JobSpec, typed
from vst.early_signals import hold
from vst.errors import ConfigError
from vst.verdict import EXIT_CONFIG, EXIT_TERMINATED

WARNING = signal.SIGUSR2
"""The signal that SLURM sends before a time limit, and sites before a preemption."""

HELD = (signal.SIGINT, signal.SIGTERM, WARNING)


@dataclass(frozen=True)
class ClusterJob:
    """The callable that submitit pickles: nothing but the path of the spec."""

    spec: str

    def __call__(self) -> int:
        restore = hold(HELD)
        code, directory = run(JobSpec.read(Path(self.spec)))
        restore()
        if code == EXIT_TERMINATED and may_begin_again(directory):
            print(f"vst: interrupted before any transaction, asking for a requeue ({directory})", file=sys.stderr)
            # submitit's handler is in place again: it counts, calls ``checkpoint``, requeues and ends the process.
            signal.raise_signal(WARNING)
        if code:
            raise SystemExit(code)
        return code

    def checkpoint(self) -> Any:
        """What submitit stores for the next start: the same job; its attempt directory will be another."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def may_begin_again(directory: Path) -> bool:
    """Whether the attempt was ended by the warning signal and had not begun a transaction."""
    return not begun_transaction(directory) and WARNING.name in _interruptions(directory / "events.jsonl")


def _interruptions(events: Path) -> list[str]:
    if not events.exists():
        return []
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines() if '"interrupted"' in line]
    return [str(line.get("signal")) for line in lines if line.get("kind") == "interrupted"]


def run(spec: JobSpec) -> tuple[int, Path]:
    """Run one spec in a new attempt directory; the exit code, and the directory."""
    os.chdir(spec.cwd)
    sys.argv = list(spec.argv)
    expect_source(spec.worktree)
    directory = claim(Path(spec.directory))
    return _run_job(spec.config, directory), directory


def expect_source(worktree: str | None) -> None:
    """ConfigError when this process imported vst from elsewhere than the snapshot that it must run."""
    import vst

    found = Path(str(vst.__file__)).resolve()
    if worktree is not None and not found.is_relative_to(Path(worktree).resolve()):
        raise ConfigError(
            f"vst was imported from {found}, expected from the snapshot {worktree}; "
            "with Python before 3.11 submit from a directory that has no vst in it"
        )


def _run_job(config: dict[str, Any], directory: Path) -> int:
    from hydra._internal.callbacks import Callbacks
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.utils import run_job, setup_globals
    from hydra.types import HydraContext

    from vst.app import task

    setup_globals()
    cfg = typed(config)
    cfg.hydra.sweep.dir, cfg.hydra.sweep.subdir = str(directory.parent), directory.name
    # The loader is for callbacks that compose; everything is composed already.
    context = HydraContext(config_loader=cast(ConfigLoader, None), callbacks=Callbacks(cfg))
    ended = run_job(
        task_function=task,
        config=cfg,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        hydra_context=context,
    )
    # An exception of the task is raised again here: the job fails for the scheduler too.
    return int(ended.return_value)


def main(arguments: list[str]) -> int:
    """``python -m vst.cluster.job SPEC``: the same without submitit, for local processes."""
    hold(HELD)
    try:
        return run(JobSpec.read(Path(arguments[0])))[0]
    except ConfigError as error:
        print(f"vst: {error}", file=sys.stderr)
        return EXIT_CONFIG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
