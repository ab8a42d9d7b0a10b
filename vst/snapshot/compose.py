"""Read a rendered Docker Compose file: one launch per service."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vst.errors import ConfigError
from vst.snapshot.env_file import read_env_file
from vst.snapshot.launch import Launch, Mount


def compose_launches(document: Mapping[str, Any], folder: Path) -> list[Launch]:
    """The services of a Compose document; relative sources count from ``folder``."""
    services = document.get("services")
    if not isinstance(services, dict) or not all(isinstance(item, dict) for item in services.values()):
        raise ConfigError("services of the Compose file must be a mapping of service names to mappings")
    volumes = document.get("volumes") or {}
    included = ("the file has include:, render it with `docker compose config`",) if document.get("include") else ()
    return [_service(name, service, volumes, folder, included) for name, service in services.items()]


def _service(
    name: str, service: Mapping[str, Any], volumes: Mapping[str, Any], folder: Path, included: tuple[str, ...]
) -> Launch:
    environment, unknown = _environment(service, folder)
    mounts = [_mount(item, volumes, folder) for item in service.get("volumes") or []]
    mounts += [Mount(None, str(item).split(":")[0], False, "tmpfs") for item in _as_list(service.get("tmpfs"))]
    for key in ("configs", "secrets"):
        targets = [item.get("target") for item in service.get(key) or [] if isinstance(item, dict)]
        mounts += [Mount(None, str(target), True, key) for target in targets if target and str(target).startswith("/")]
    unknown += [
        f"{key} is set, so its mounts are not in this file; write them out" for key in _HIDING if service.get(key)
    ]
    return Launch(
        name=f"service {name}",
        image=service.get("image"),
        mounts=tuple(mounts),
        environment=environment,
        command=" ".join(_words(service.get("entrypoint")) + _words(service.get("command"))),
        workdir=service.get("working_dir"),
        unknown=(*unknown, *included),
    )


_HIDING = ("extends", "volumes_from")


def _mount(item: Any, volumes: Mapping[str, Any], folder: Path) -> Mount:
    if isinstance(item, dict):
        read_only = bool(item.get("read_only"))
        return _resolved(
            str(item.get("type", "volume")), item.get("source"), str(item["target"]), read_only, volumes, folder
        )
    parts = str(item).split(":")
    if len(parts) == 1:
        return Mount(None, parts[0], False, "anonymous volume")
    options = parts[2].split(",") if len(parts) > 2 else []
    is_path = parts[0][:1] in ("/", ".", "~", "$")
    return _resolved("bind" if is_path else "volume", parts[0], parts[1], "ro" in options, volumes, folder)


def _resolved(kind: str, source: Any, target: str, read_only: bool, volumes: Mapping[str, Any], folder: Path) -> Mount:
    if kind == "bind" and source:
        path = os.path.expanduser(str(source))
        return Mount(path if "$" in path else os.path.normpath(folder / path), target, read_only)
    options = ((volumes.get(str(source)) or {}).get("driver_opts") or {}) if kind == "volume" else {}
    flags = str(options.get("o", "")).split(",")
    if "bind" in flags and options.get("device"):
        return Mount(str(options["device"]), target, read_only or "ro" in flags)
    return Mount(None, target, read_only, f"{kind} {source or ''}".strip())


def _environment(service: Mapping[str, Any], folder: Path) -> tuple[dict[str, str | None], list[str]]:
    environment: dict[str, str | None] = {}
    unknown = []
    for item in _as_list(service.get("env_file")):
        path = folder / str(item["path"] if isinstance(item, dict) else item)
        values = read_env_file(path)
        if values is None:
            unknown.append(f"env_file {path} cannot be read, so PYTHONPATH cannot be judged; put it beside the file")
        environment.update(values or {})
    given = service.get("environment") or {}
    pairs: Iterable[tuple[str, Any]] = given.items() if isinstance(given, dict) else map(_pair, given)
    environment.update({key: None if value is None else str(value) for key, value in pairs})
    return environment, unknown


def _pair(text: Any) -> tuple[str, str | None]:
    key, sign, value = str(text).partition("=")
    return key, value if sign else None


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _words(value: Any) -> list[str]:
    return [str(word) for word in _as_list(value)]
