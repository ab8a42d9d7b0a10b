"""Read the container options that pyxis adds to ``sbatch`` and ``srun``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from vst.snapshot.launch import Launch, Mount
from vst.snapshot.options import Options, parse

_SWITCHES = frozenset({
    "-E", "-H", "-I", "-K", "-k", "-l", "-O", "-Q", "-s", "-u", "-v", "-X", "-Z", "--contiguous", "--disable-status",
    "--exact", "--exclusive", "--hold", "--immediate", "--kill-on-bad-exit", "--label", "--multi-prog",
    "--no-allocate", "--no-kill", "--overcommit", "--overlap", "--oversubscribe", "--preserve-env", "--pty",
    "--quiet", "--requeue", "--no-requeue", "--parsable", "--test-only", "--unbuffered", "--use-min-nodes",
    "--verbose", "--wait-all-nodes", "--container-mount-home", "--no-container-mount-home", "--container-remap-root",
    "--no-container-remap-root", "--container-entrypoint", "--no-container-entrypoint", "--container-entrypoint-log",
    "--container-writable", "--container-readonly", "--reboot", "--spread-job", "--help", "--usage", "--version",
})  # fmt: skip


def directives(text: str) -> Options:
    """The options of all ``#SBATCH`` lines."""
    lines = [line.strip()[len("#SBATCH") :] for line in text.splitlines() if line.strip().startswith("#SBATCH")]
    given = [pair for line in lines for pair in parse(_words(line), _SWITCHES).given]
    return Options(tuple(given), ())


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def srun_options(words: Sequence[str]) -> Options:
    """The options of one ``srun`` line; the command is what remains."""
    return parse(words[1:], _SWITCHES)


def asks_for_container(options: Options) -> bool:
    """True when pyxis would start a container."""
    return options.has("--container-image", "--container-mounts", "--container-name")


def pyxis_launch(name: str, options: Options, outer: Options, shell: Mapping[str, str | None], command: str) -> Launch:
    """One launch; what ``options`` leaves out comes from the ``#SBATCH`` lines (``outer``)."""
    both = Options((*outer.given, *options.given), ())
    mounts = options.values("--container-mounts") or outer.values("--container-mounts")
    return Launch(
        name=name,
        image=_image(both.last("--container-image")),
        mounts=tuple(mount for value in mounts for mount in container_mounts(value)),
        environment=_environment(both, shell),
        command=command,
        workdir=both.last("--container-workdir"),
        ordered=True,
        unknown=tuple(_home(both)),
    )


def container_mounts(value: str) -> list[Mount]:
    """``src[:dest[:flags]]`` values separated by commas; flags are joined with ``+``, as enroot reads them."""
    mounts = []
    for part in filter(None, value.split(",")):
        fields = part.split(":")
        source = os.path.expanduser(fields[0])
        flags = fields[2].split("+") if len(fields) > 2 else []
        target = fields[1] if len(fields) > 1 and fields[1] else source
        if source.startswith(("tmpfs", "umount")) and "/" not in source:
            mounts.append(Mount(None, target, False, source))
        else:
            mounts.append(Mount(source, target, "ro" in flags))
    return mounts


def _image(reference: str | None) -> str | None:
    return (
        reference.split("://", 1)[1] if reference and reference.startswith(("docker://", "dockerd://")) else reference
    )


def _environment(options: Options, shell: Mapping[str, str | None]) -> dict[str, str | None]:
    found = {"PYTHONPATH": shell["PYTHONPATH"]} if "PYTHONPATH" in shell else {}
    for value in options.values("--export"):
        for item in value.split(","):
            key, sign, text = item.partition("=")
            if key == "PYTHONPATH":
                found[key] = text if sign else None
    named = {name for value in options.values("--container-env") for name in value.split(",")}
    if "PYTHONPATH" in named and "PYTHONPATH" not in found:
        found["PYTHONPATH"] = None
    return found


def _home(options: Options) -> list[str]:
    if not options.has("--container-mount-home"):
        return []
    return [f"--container-mount-home mounts {Path.home()}, which is not in the list of mounts; leave it out"]
