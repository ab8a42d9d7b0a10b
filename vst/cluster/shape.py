"""What a launcher can be told: the shape of a SLURM job, or how many local processes run at once."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vst.errors import ConfigError

PREFIX = "hydra.launcher."


@dataclass
class SlurmShape:
    """One job per run. Times are minutes or seconds as the name says, memory is GiB; null leaves the site's default."""

    _target_: str = "hydra_plugins.vst_launcher.launcher.SlurmLauncher"
    name: str = "vst"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    timeout_min: int = 60
    nodes: int = 1
    gpus_per_node: int | None = None
    gres: str | None = None
    cpus_per_task: int | None = None
    mem_gb: float | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    exclusive: bool = False
    dependency: str | None = None
    comment: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    array_parallelism: int = 256
    array_size: int | None = None
    setup: list[str] = field(default_factory=list)
    srun_args: list[str] = field(default_factory=list)
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    python: str | None = None
    signal_delay_s: int = 120
    requeues: int = 1
    submit_timeout_s: float = 600.0
    retry_s: float = 10.0
    poll_s: float = 30.0
    settle_s: float = 15.0
    unseen_s: float = 120.0


@dataclass
class LocalShape:
    """Runs as processes of this machine, ``parallel`` at once; a server on the CPU takes all cores, so one is usual."""

    _target_: str = "hydra_plugins.vst_launcher.launcher.LocalLauncher"
    parallel: int = 1
    python: str | None = None


Shape = SlurmShape | LocalShape


def mode_of(target: str) -> str | None:
    """Hydra's mode for a launcher: SLURM gets also a single run, None leaves the choice to ``-m``."""
    return "MULTIRUN" if target == SlurmShape._target_ else None


def parameters(shape: type[Shape]) -> dict[str, Any]:
    """The names that a user can set, with their defaults."""
    defaults = shape()
    return {one.name: getattr(defaults, one.name) for one in dataclasses.fields(shape) if one.name != "_target_"}


def make_shape(shape: type[Shape], given: dict[str, Any]) -> Shape:
    """The shape with the values of the configuration; ConfigError lists the valid names, and values out of range."""
    unknown = set(given) - set(parameters(shape))
    if unknown:
        raise ConfigError("\n".join(_unknown(name, shape) for name in sorted(unknown)))
    made = shape(**given)
    problems = list(_problems(made))
    if problems:
        raise ConfigError("\n".join(problems))
    return made


def unknown_overrides(words: Sequence[str]) -> list[str]:
    """What to say about ``hydra.launcher`` parameters on a command line that its launcher does not know."""
    chosen = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("hydra/launcher=")]
    shapes: dict[str, type[Shape]] = {"slurm": SlurmShape, "local": LocalShape}
    shape = shapes.get(chosen[-1] if chosen else "local")
    if shape is None:
        return []
    names = [_parameter(word) for word in words]
    return [_unknown(name, shape) for name in names if name and name not in parameters(shape)]


def _parameter(word: str) -> str | None:
    key = word.lstrip("+~").partition("=")[0]
    return key[len(PREFIX) :].partition(".")[0] if key.startswith(PREFIX) and not key.endswith("_target_") else None


def _unknown(name: str, shape: type[Shape]) -> str:
    valid = parameters(shape)
    close = difflib.get_close_matches(name, valid, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    known = "\n".join(f"  {key} (default: {value!r})" for key, value in sorted(valid.items()))
    more = "\nanything else that sbatch takes: +hydra.launcher.additional_parameters.NAME=VALUE"
    return f"{PREFIX}{name} is unknown{hint}; valid are:\n{known}{more if shape is SlurmShape else ''}"


def _problems(shape: Shape) -> Iterable[str]:
    least: dict[str, int] = (
        {"parallel": 1}
        if isinstance(shape, LocalShape)
        else {"nodes": 1, "timeout_min": 1, "array_parallelism": 1, "requeues": 0, "signal_delay_s": 1}
    )
    for name, bound in least.items():
        if getattr(shape, name) < bound:
            yield f"{PREFIX}{name}={getattr(shape, name)}: must be at least {bound}"
    if isinstance(shape, SlurmShape) and shape.timeout_min * 60 <= shape.signal_delay_s:
        yield (
            f"{PREFIX}signal_delay_s={shape.signal_delay_s}: must be shorter than the time limit of "
            f"{shape.timeout_min} min, or the warning comes at once"
        )
