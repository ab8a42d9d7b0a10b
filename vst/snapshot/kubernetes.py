"""Read rendered Kubernetes objects (Pod, Job, Deployment and the like): one launch per container."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from vst.errors import ConfigError
from vst.snapshot.launch import Launch, Mount

_TEMPLATED = ("Job", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")


def kubernetes_launches(documents: list[Mapping[str, Any]]) -> list[Launch]:
    """Every container of every object that runs pods; objects that run none are passed over."""
    launches = [
        launch for document in documents for kind, name, spec in _pods(document) for launch in _pod(kind, name, spec)
    ]
    if not launches:
        kinds = ", ".join(sorted({str(document.get("kind")) for document in documents}))
        raise ConfigError(f"no pod in the file (found {kinds}), expected a Pod, CronJob or {', '.join(_TEMPLATED)}")
    return launches


def _pods(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    kind, spec = document.get("kind"), document.get("spec") or {}
    name = str((document.get("metadata") or {}).get("name", "?"))
    if kind == "List":
        for item in document.get("items") or []:
            yield from _pods(item)
    elif kind == "CronJob":
        yield "CronJob", name, spec.get("jobTemplate", {}).get("spec", {}).get("template", {}).get("spec", {})
    elif kind == "Pod":
        yield "Pod", name, spec
    elif kind in _TEMPLATED:
        yield str(kind), name, spec.get("template", {}).get("spec", {})


def _pod(kind: str, name: str, spec: Mapping[str, Any]) -> Iterator[Launch]:
    volumes = {item["name"]: item for item in spec.get("volumes") or []}
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or []:
            yield _container(f"{kind} {name}, container {container.get('name', '?')}", container, volumes)


def _container(name: str, container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]]) -> Launch:
    environment: dict[str, str | None] = {
        item["name"]: None if "valueFrom" in item else str(item.get("value", "")) for item in container.get("env") or []
    }
    unknown = []
    if container.get("envFrom") and "PYTHONPATH" not in environment:
        unknown.append("envFrom may set PYTHONPATH, which this file does not show; set PYTHONPATH in env")
    return Launch(
        name=name,
        image=container.get("image"),
        mounts=tuple(_mount(item, volumes.get(item["name"], {})) for item in container.get("volumeMounts") or []),
        environment=environment,
        command=" ".join(str(word) for key in ("command", "args") for word in container.get(key) or []),
        workdir=container.get("workingDir"),
        unknown=tuple(unknown),
    )


def _mount(item: Mapping[str, Any], volume: Mapping[str, Any]) -> Mount:
    target, read_only = str(item["mountPath"]), item.get("readOnly") is True
    if "hostPath" not in volume:
        kinds = [key for key in volume if key != "name"] or ["undeclared volume"]
        return Mount(None, target, read_only, f"{kinds[0]} {item['name']}")
    below = str(item.get("subPathExpr", item.get("subPath", "")))
    source = posixpath.join(str(volume["hostPath"]["path"]), below) if below else str(volume["hostPath"]["path"])
    return Mount(source.replace("$(", "${"), target, read_only)
