"""What is handed to a job: one YAML file with the resolved configuration and where and from where to run.

Nothing is pickled but the path of this file, so that it can be read by anyone and needs the launcher's process no more.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.conf import HydraConf
from omegaconf import DictConfig, OmegaConf

from vst.config import VstConf
from vst.errors import ConfigError

FORMAT = "vst-job/1"


@dataclass(frozen=True)
class JobSpec:
    """One run that was sent out. ``directory`` is that of its first attempt, ``config`` holds Hydra's own part too."""

    directory: str
    cwd: str
    argv: tuple[str, ...]
    worktree: str | None
    config: dict[str, Any]

    def write(self, path: Path) -> None:
        """Write the file for its owner alone: it holds what the run needs, and that may be a secret."""
        content = {
            "format": FORMAT,
            "directory": self.directory,
            "cwd": self.cwd,
            "argv": list(self.argv),
            "worktree": self.worktree,
            "config": self.config,
        }
        write_private(path, OmegaConf.to_yaml(OmegaConf.create(content)).encode())

    @staticmethod
    def read(path: Path) -> JobSpec:
        """The spec in a file; ConfigError when it is not one."""
        content = OmegaConf.to_container(OmegaConf.load(path))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ConfigError(f"{path} is not a job of this version, expected format {FORMAT}")
        return JobSpec(
            directory=content["directory"],
            cwd=content["cwd"],
            argv=tuple(content["argv"]),
            worktree=content["worktree"],
            config={str(key): value for key, value in content["config"].items()},
        )


def write_private(path: Path, data: bytes) -> None:
    """Replace a file whole; nobody but its owner can read it, not even for a moment."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, path)


def typed(config: dict[str, Any]) -> DictConfig:
    """The configuration with its schemas again, as Hydra's ``run_job`` and ``vst.config.load`` expect it."""
    schema = OmegaConf.structured(VstConf)
    OmegaConf.set_struct(schema, False)
    schema.hydra = OmegaConf.structured(HydraConf)
    OmegaConf.set_struct(schema.hydra, False)  # groups such as hydra/env add keys of their own
    merged = OmegaConf.merge(schema, OmegaConf.create(_escaped(config)))
    if not isinstance(merged, DictConfig):
        raise ConfigError("the configuration of a job is not a mapping")
    OmegaConf.set_struct(merged, True)
    return merged


def _escaped(value: Any) -> Any:
    """Text that looks like an interpolation was one already and is meant as it stands."""
    if isinstance(value, dict):
        return {key: _escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
