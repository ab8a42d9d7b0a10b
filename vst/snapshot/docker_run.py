"""Read ``docker run`` lines (podman and nerdctl take the same options)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vst.snapshot.env_file import read_env_file
from vst.snapshot.launch import Launch, Mount
from vst.snapshot.options import Options, parse

ENGINES = frozenset({"docker", "podman", "nerdctl"})

_SWITCHES = frozenset({
    "-d", "-i", "-t", "-P", "-q", "--detach", "--interactive", "--tty", "--publish-all", "--quiet", "--rm", "--init",
    "--privileged", "--read-only", "--help", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy",
    "--disable-content-trust", "--no-hosts", "--replace", "--tls-verify", "--env-host", "--rmi",
})  # fmt: skip
_GLOBAL_SWITCHES = frozenset({
    "-D", "--debug", "--tls", "--tlsverify", "--remote", "-r",
})  # fmt: skip


def docker_launch(name: str, words: Sequence[str], folder: Path) -> Launch | None:
    """The launch of ``docker [options] [container] run|create ...``; None for another subcommand."""
    rest = list(parse(words[1:], _GLOBAL_SWITCHES).rest)
    if rest[:1] == ["container"]:
        rest = rest[1:]
    if not rest or rest[0] not in ("run", "create"):
        return None
    options = parse(rest[1:], _SWITCHES)
    environment, unknown = _environment(options, folder)
    unknown += [f"{key} brings mounts that are not in this file; write them out" for key in _HIDING if options.has(key)]
    return Launch(
        name=name,
        image=options.rest[0] if options.rest else None,
        mounts=tuple(mount for option, value in options.given if value for mount in _mounts(option, value)),
        environment=environment,
        command=" ".join([options.last("--entrypoint") or "", *options.rest[1:]]),
        workdir=options.last("-w", "--workdir"),
        unknown=tuple(unknown),
    )


_HIDING = ("--volumes-from",)


def _mounts(option: str, value: str) -> list[Mount]:
    if option in ("-v", "--volume"):
        return [_volume(value)]
    if option == "--mount":
        return [mount_option(value)]
    return [Mount(None, value.split(":")[0], False, "tmpfs")] if option == "--tmpfs" else []


def _volume(value: str) -> Mount:
    parts = value.split(":")
    if len(parts) == 1:
        return Mount(None, parts[0], False, "anonymous volume")
    read_only = len(parts) > 2 and "ro" in parts[2].split(",")
    if parts[0][:1] in ("/", ".", "~", "$"):
        return Mount(os.path.expanduser(parts[0]), parts[1], read_only)
    return Mount(None, parts[1], read_only, f"volume {parts[0]}")


def mount_option(value: str) -> Mount:
    """One ``type=bind,source=...,target=...,readonly`` value, as Docker and Apptainer write it."""
    fields = dict(part.partition("=")[::2] for part in value.split(","))
    kind = fields.get("type", "volume")
    source = fields.get("source", fields.get("src"))
    target = next((fields[key] for key in ("target", "destination", "dst") if key in fields), source or "")
    flags = [fields[key] for key in ("readonly", "ro") if key in fields]
    read_only = any(flag.lower() in ("", "true", "1") for flag in flags)
    if kind == "bind":
        return Mount(os.path.expanduser(source or ""), target, read_only)
    return Mount(None, target, read_only, f"{kind} {source or ''}".strip())


def _environment(options: Options, folder: Path) -> tuple[dict[str, str | None], list[str]]:
    environment: dict[str, str | None] = {}
    unknown = []
    for name in options.values("--env-file"):
        values = read_env_file(folder / name)
        if values is None:
            unknown.append(f"--env-file {name} cannot be read, so PYTHONPATH cannot be judged; put it beside the file")
        environment.update(values or {})
    if options.has("--env-host"):
        unknown.append("--env-host passes the host's PYTHONPATH, which this file does not show; leave it out")
    for item in options.values("-e", "--env"):
        key, sign, value = item.partition("=")
        environment[key] = value if sign else None
    return environment, unknown
