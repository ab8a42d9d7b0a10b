"""From overrides to runs: every configuration composed, checked and written down before anything is sent out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import filter_overrides
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from vst import config as configuration
from vst.attempt import attempts_begun
from vst.cluster.shape import Shape, SlurmShape
from vst.cluster.spec import JobSpec, typed
from vst.cluster.sweep import LAUNCH_DIR, Run
from vst.config import LaunchConf, VstConf
from vst.errors import ConfigError
from vst.provenance.redaction import Scrubber
from vst.server.allocation import devices_needed


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to go: its row in the sweep, what the job gets, and its typed configuration."""

    run: Run
    spec: JobSpec
    conf: VstConf


def prepare(
    context: HydraContext, config: DictConfig, overrides: Sequence[Sequence[str]], first: int, sweep: Path
) -> list[Prepared]:
    """All runs of a batch; ConfigError lists what is wrong with any of them. Nothing is written."""
    prepared, problems = [], []
    for number, words in enumerate(overrides, start=first):
        try:
            prepared.append(_prepare(context, config, list(words), number, sweep))
        except ConfigError as error:
            problems.append(f"run {number} ({' '.join(filter_overrides(words)) or 'no overrides'}): {error}")
    if problems:
        raise ConfigError("\n".join(problems))
    _distinct(prepared)
    return prepared


def _prepare(context: HydraContext, config: DictConfig, words: list[str], number: int, sweep: Path) -> Prepared:
    cfg = context.config_loader.load_sweep_config(config, words)
    with open_dict(cfg):
        cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
        cfg.hydra.sweep.dir = str(sweep)
        cfg.launch = OmegaConf.structured(LaunchConf)  # how it is sent out is no part of what the run is
        cfg.console = "auto"  # nor is how the launcher shows it
    HydraConfig.instance().set_config(cfg)
    directory = Path(os.path.normpath(sweep / str(cfg.hydra.sweep.subdir)))
    with open_dict(cfg):
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.sweep.subdir = str(directory.relative_to(sweep)) if directory.is_relative_to(sweep) else "."
    if directory == sweep or not directory.is_relative_to(sweep):
        raise ConfigError(f"hydra.sweep.subdir leads to {directory}, expected a directory inside {sweep}")
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    resolved = {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}
    # What the job will read is what is checked and digested here.
    task = _without_hydra(typed(resolved))
    run = Run(
        number=number,
        overrides=[str(word) for word in Scrubber.of(resolved, os.environ).foreign_tree(filter_overrides(words))],
        directory=str(directory.relative_to(sweep)),
        spec=f"{LAUNCH_DIR}/run-{number}.yaml",
        config_digest=configuration.digest(task),
        attempts_before=attempts_begun(directory),
    )
    return Prepared(
        run, JobSpec(str(directory), os.getcwd(), tuple(sys.argv), None, resolved), configuration.load(task)
    )


def _without_hydra(cfg: DictConfig) -> DictConfig:
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def _distinct(prepared: Sequence[Prepared]) -> None:
    seen: dict[str, int] = {}
    for one in prepared:
        other = seen.setdefault(one.run.directory, one.run.number)
        if other != one.run.number:
            raise ConfigError(
                f"runs {other} and {one.run.number} would share the directory {one.run.directory}: "
                "give hydra.sweep.subdir something that differs, such as ${hydra.job.num}"
            )


def expect_enough_devices(prepared: Sequence[Prepared], shape: Shape) -> None:
    """ConfigError when a job's shape books fewer GPUs on a node than its server and publisher need there."""
    if not isinstance(shape, SlurmShape) or shape.gpus_per_node is None:
        return
    for one in prepared:
        needed = devices_needed(one.conf, shape.nodes)
        if needed > shape.gpus_per_node:
            raise ConfigError(
                f"run {one.run.number} needs {needed} GPUs on a node (server and publisher), "
                f"hydra.launcher.gpus_per_node={shape.gpus_per_node} books fewer"
            )


def with_worktree(spec: JobSpec, worktree: str | None) -> JobSpec:
    """The spec of a job that must import from a snapshot's worktree."""
    fields: dict[str, Any] = {**spec.__dict__, "worktree": worktree}
    return JobSpec(**fields)
