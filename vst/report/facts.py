"""The facts below the fold: what was asked, of which checkpoints, by which code, on which machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from vst.report.material import Material

Pairs = list[tuple[str, Any]]


def subject(material: Material) -> str:
    """The question of the run in one sentence."""
    model, other = (material.block("inputs", role) for role in ("model", "checkpoint"))
    name, wanted = _name(model), _name(other)
    if not name and not wanted:
        return "no checkpoint could be read"
    servers = material.block("runtime").get("servers")
    version = material.block("runtime", "publisher").get("vllm")
    on = f" on vLLM {version}" if version else ""
    how = "" if not servers else ", a server of its own" if any(one.get("argv") for one in servers) else ", attached"
    if not wanted:
        return f"{name}{on}{how}"
    return f"does a server on {name or 'A'} really serve {wanted}{on}{how}?"


def _name(checkpoint: Mapping[str, Any]) -> str:
    """What a checkpoint was declared to be called, else the last part of its path."""
    path = str(checkpoint.get("path") or "").rstrip("/")
    return str(checkpoint.get("declared_name") or "") or path.rpartition("/")[2]


def blocks(material: Material) -> Iterator[tuple[str, Pairs]]:
    """Every block of facts that is there, with its title."""
    for title, pairs in (
        ("Request", _request(material)),
        ("Checkpoint A, model", _checkpoint(material.block("inputs", "model"))),
        ("Checkpoint B, checkpoint", _checkpoint(material.block("inputs", "checkpoint"))),
        ("Code", _known(material.block("source"))),
        ("Libraries", _libraries(material)),
        ("Machine", _known(material.block("machine"))),
        ("What this run rests on", _known(material.block("chain"), without=("derived",))),
        ("Filled in by the tool", _defaults(material)),
    ):
        if pairs:
            yield title, pairs


def _request(material: Material) -> Pairs:
    request = material.block("request")
    argv = request.get("argv")
    command = shlex.join(map(str, argv)) if isinstance(argv, list) else argv
    return [("command", command), ("configuration", request.get("config_digest"))] if request else []


def _checkpoint(found: Mapping[str, Any]) -> Pairs:
    keys = ("declared_name", "declared_revision", "path", "bytes", "layout_digest", "content_digest", "shards")
    return [(key.replace("_", " "), found.get(key)) for key in keys if found.get(key) is not None]


def _known(found: Mapping[str, Any], without: tuple[str, ...] = ()) -> Pairs:
    """What is known, and for what is not the reason."""
    reasons = found.get("unknown")
    why: Mapping[str, Any] = reasons if isinstance(reasons, Mapping) else {}
    return [
        (key.replace("_", " "), f"unknown: {why[key]}" if value is None and key in why else value)
        for key, value in found.items()
        if key not in ("unknown", *without)
    ]


def _libraries(material: Material) -> Pairs:
    runtime, publisher = material.block("runtime"), material.block("runtime", "publisher")
    pairs = [(key, runtime.get(key)) for key in ("python", "packages", "image", "driver") if runtime.get(key)]
    pairs += [(key, publisher.get(key)) for key in ("vllm", "torch", "cuda", "nccl") if publisher.get(key)]
    servers = runtime.get("servers")
    for server in servers if isinstance(servers, list) else ():
        argv = server.get("argv")
        pairs.append((f"server {server.get('label')}", shlex.join(map(str, argv)) if argv else "attached"))
    return pairs


def _defaults(material: Material) -> Pairs:
    found = material.facts.get("defaults")
    return [
        (str(one.get("key")), f"{one.get('value')} (from {one.get('from')})")
        for one in (found if isinstance(found, list) else ())
        if isinstance(one, Mapping)
    ]
