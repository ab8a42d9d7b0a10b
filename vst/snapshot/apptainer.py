"""Read ``apptainer exec|run|shell`` lines (Singularity takes the same options)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from vst.snapshot.docker_run import mount_option
from vst.snapshot.launch import Launch, Mount
from vst.snapshot.options import Options, parse

ENGINES = frozenset({"apptainer", "singularity"})

_VALUED = frozenset({
    "-B", "--bind", "--mount", "--env", "--env-file", "-H", "--home", "-W", "--workdir", "-S", "--scratch", "--pwd",
    "--cwd", "-o", "--overlay", "--app", "--dns", "--network", "--network-args", "--security", "--hostname",
    "--add-caps", "--drop-caps", "--apply-cgroups", "--memory", "--cpus", "--cpuset-cpus", "--fusemount",
    "--no-mount", "--pem-path", "--docker-host", "--authfile", "--blkio-weight", "--oom-kill-disable", "--pids-limit",
    "--shm-size",
})  # fmt: skip
_BIND_VARIABLES = ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH")
_ENVIRONMENT_VARIABLES = ("APPTAINERENV_PYTHONPATH", "SINGULARITYENV_PYTHONPATH")


def apptainer_launch(name: str, words: Sequence[str], shell: Mapping[str, str | None]) -> Launch | None:
    """The launch of one line, with the variables that the script has set before; None for another subcommand."""
    rest = list(parse(words[1:], frozenset(), frozenset({"-c", "--config"})).rest)
    if rest[:2] in (["instance", "start"], ["instance", "run"]):
        rest = rest[1:]
    if not rest or rest[0] not in ("exec", "run", "shell", "start"):
        return None
    options = parse(rest[1:], frozenset(), _VALUED)
    mounts = [mount for key in _BIND_VARIABLES for mount in binds(shell.get(key) or "")]
    for option, value in options.given:
        if value and option in ("-B", "--bind"):
            mounts += binds(value)
        elif value and option == "--mount":
            mounts.append(mount_option(value))
    mounts += [Mount(None, path, False, "scratch") for path in options.values("-S", "--scratch")]
    return Launch(
        name=name,
        image=_image(options),
        mounts=tuple(mounts),
        environment=_environment(options, shell),
        command=" ".join(options.rest[1:]),
        workdir=options.last("--pwd", "--cwd"),
        ordered=True,
        unknown=tuple(_defaults(options)),
    )


def binds(value: str) -> list[Mount]:
    """``src[:dest[:opts]]`` values, separated by commas; a bare ``src`` lands on its own path."""
    mounts: list[Mount] = []
    for part in filter(None, value.split(",")):
        if part in ("ro", "rw") and mounts:  # the options of the value before: a,b:c:ro,rw is never written
            mounts[-1] = Mount(mounts[-1].source, mounts[-1].target, part == "ro")
            continue
        fields = part.split(":")
        source = os.path.expanduser(fields[0])
        mounts.append(Mount(source, fields[1] if len(fields) > 1 and fields[1] else source, "ro" in fields[2:]))
    return mounts


def _image(options: Options) -> str | None:
    if not options.rest:
        return None
    scheme, sign, name = options.rest[0].partition("://")
    return name if sign and scheme in ("docker", "oras", "library") else options.rest[0]


def _environment(options: Options, shell: Mapping[str, str | None]) -> dict[str, str | None]:
    clean = options.has("--cleanenv", "-e", "--containall", "-C")
    found: dict[str, str | None] = {}
    if "PYTHONPATH" in shell and not clean:
        found["PYTHONPATH"] = shell["PYTHONPATH"]
    for key in _ENVIRONMENT_VARIABLES:
        if key in shell:
            found["PYTHONPATH"] = shell[key]
    for item in options.values("--env"):
        for pair in item.split(","):
            key, sign, value = pair.partition("=")
            if sign:
                found[key] = value
    return found


def _defaults(options: Options) -> list[str]:
    """Apptainer mounts the home and the current directory unless it is told not to."""
    messages = []
    if options.has("--env-file"):
        messages.append("--env-file may set PYTHONPATH, which this file does not show; use --env")
    if options.has("--overlay", "-o"):
        messages.append("--overlay may lay other files over the root; leave it out")
    if options.has("-c", "--contain", "-C", "--containall"):
        return messages
    off = {name for value in options.values("--no-mount") for name in value.split(",")}
    if not ({"home", "cwd"} <= off or (options.has("--no-home") and "cwd" in off)):
        messages.append(
            "Apptainer mounts the home and the current directory by itself; add --containall or --no-mount home,cwd"
        )
    return messages
