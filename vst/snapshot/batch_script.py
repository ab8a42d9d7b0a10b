"""Find the container launches of a shell or sbatch script: pyxis, Apptainer, Docker."""

from __future__ import annotations

import posixpath
from pathlib import Path

from vst.errors import ConfigError
from vst.snapshot import apptainer, docker_run, pyxis
from vst.snapshot.launch import Launch
from vst.snapshot.options import Options
from vst.snapshot.shell_words import Command, commands

_STARTERS = docker_run.ENGINES | apptainer.ENGINES | {"srun"}


def script_launches(text: str, folder: Path) -> list[Launch]:
    """Every launch in order; ConfigError when the script starts no container."""
    outer = pyxis.directives(text)
    shell: dict[str, str | None] = {}
    launches = [launch for command in commands(text) for launch in _launches(command, outer, shell, folder)]
    if pyxis.asks_for_container(outer):
        launches.insert(0, pyxis.pyxis_launch("#SBATCH", outer, Options((), ()), {}, text))
    if not launches:
        raise ConfigError(
            "the script starts no container: expected --container-image (#SBATCH, srun), apptainer exec or docker run"
        )
    return launches


def _launches(command: Command, outer: Options, shell: dict[str, str | None], folder: Path) -> list[Launch]:
    local = {**shell, **dict(item.partition("=")[::2] for item in command.assignments)}
    if not command.words:
        shell.update(local)
        return []
    if command.words[0] == "unset":
        for name in command.words[1:]:
            shell.pop(name, None)
        return []
    start = next((place for place, word in enumerate(command.words) if posixpath.basename(word) in _STARTERS), None)
    return [] if start is None else _started(command.line, list(command.words[start:]), outer, local, folder)


def _started(line: int, words: list[str], outer: Options, shell: dict[str, str | None], folder: Path) -> list[Launch]:
    engine = posixpath.basename(words[0])
    name = f"line {line}, {engine}"
    if engine in docker_run.ENGINES:
        launch = docker_run.docker_launch(name, words, folder)
    elif engine in apptainer.ENGINES:
        launch = apptainer.apptainer_launch(name, words, shell)
    else:
        options = pyxis.srun_options(words)
        if not pyxis.asks_for_container(options):
            inner = options.rest and posixpath.basename(options.rest[0]) in _STARTERS
            return _started(line, list(options.rest), outer, shell, folder) if inner else []
        launch = pyxis.pyxis_launch(name, options, outer, shell, " ".join(options.rest))
    return [launch] if launch else []
