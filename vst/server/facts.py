"""What a server says of itself, read in one pass and kept as data; checks judge it elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vst.errors import TransportError
from vst.server.client import ControlPlane, HttpFailure

ROUTES = (
    "/pause",
    "/resume",
    "/is_paused",
    "/init_weight_transfer_engine",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/weight_info",
    "/get_world_size",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/server_info",
    "/is_sleeping",
)
"""The development routes without which nothing can be proven (0.28 and later have all of them)."""

UNTOUCHED = "default"
"""vLLM's weight version before the first update."""

START_TIME = re.compile(r"^process_start_time_seconds(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)
AWAKE = re.compile(r'^vllm:engine_sleep_state\{[^}]*sleep_state="awake"[^}]*\}\s+([0-9.eE+-]+)', re.MULTILINE)


@dataclass(frozen=True)
class Instance:
    """Which process answers: two of these differ exactly when the server was restarted."""

    start_time: str | None
    instance_id: str | None

    def to_json(self) -> dict[str, str | None]:
        return {"start_time": self.start_time, "instance_id": self.instance_id}


@dataclass(frozen=True)
class ServerFacts:
    """One server at one moment. ``config`` and ``env`` are vLLM's own account of its configuration and variables."""

    version: str
    models: tuple[Mapping[str, Any], ...]
    routes: tuple[str, ...]
    world_size: int | None
    paused: bool | None
    sleeping: bool | None
    weight_version: str | None
    instance: Instance
    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)

    @property
    def transfer_backend(self) -> str | None:
        backend = _field(self.config.get("weight_transfer_config"), "backend")
        return backend if isinstance(backend, str) else None

    @property
    def max_model_len(self) -> int | None:
        length = self.models[0].get("max_model_len") if self.models else None
        return length if isinstance(length, int) and not isinstance(length, bool) else None


def read_facts(control: ControlPlane) -> ServerFacts:
    """Ask everything that does not change the server; a route that is not there gives None, no answer at all raises."""
    info = _ask(control, "/server_info", {"config_format": "json"})
    config = _part(info, "vllm_config")
    paused = _field(_ask(control, "/is_paused"), "is_paused")
    return ServerFacts(
        version=read_version(control),
        models=read_models(control),
        routes=read_routes(control),
        world_size=_field(_ask(control, "/get_world_size"), "world_size"),
        paused=paused,
        sleeping=asleep(_field(_ask(control, "/is_sleeping"), "is_sleeping"), paused, _text(_ask(control, "/metrics"))),
        weight_version=_field(_ask(control, "/weight_info"), "weight_version"),
        instance=Instance(read_start_time(control), config.get("instance_id")),
        config=config,
        env=_part(info, "vllm_env"),
        system=_part(info, "system_env"),
    )


def asleep(flag: Any, paused: Any, metrics: str) -> bool | None:
    """Whether memory was given back, from the flag and from the sleep gauge; None where they cannot tell.

    vLLM's ``/is_sleeping`` also says true for a server that is only paused (0.32): of a paused one the gauge decides.
    """
    awake = [float(value) for value in AWAKE.findall(metrics)]
    if flag is True and paused is not False:
        return not all(awake) if awake else None
    return flag if isinstance(flag, bool) else None


def _text(body: Any) -> str:
    return body if isinstance(body, str) else ""


def read_models(control: ControlPlane) -> tuple[Mapping[str, Any], ...]:
    """The served models; TransportError when the answer is no list of them."""
    answer = control.get("/v1/models")
    models = _field(answer, "data")
    if not isinstance(models, list) or not all(isinstance(model, Mapping) for model in models):
        raise TransportError(f"/v1/models is no list of models: {str(answer)[:200]}")
    return tuple(models)


def read_instance(control: ControlPlane) -> Instance:
    config = _part(_ask(control, "/server_info", {"config_format": "json"}), "vllm_config")
    return Instance(read_start_time(control), config.get("instance_id"))


def read_version(control: ControlPlane) -> str:
    return str(_field(control.get("/version"), "version"))


def read_label(control: ControlPlane) -> str | None:
    """The weight version as it is now; None where the server has none."""
    label = _field(_ask(control, "/weight_info"), "weight_version")
    return label if isinstance(label, str) else None


def read_start_time(control: ControlPlane) -> str | None:
    text = _ask(control, "/metrics")
    found = START_TIME.search(text) if isinstance(text, str) else None
    return found.group(1) if found else None


def read_routes(control: ControlPlane) -> tuple[str, ...]:
    """Which of ``ROUTES`` exist, without calling them: a GET of a POST route answers 405, an unknown path 404."""
    return tuple(route for route in ROUTES if _exists(control, route))


def _exists(control: ControlPlane, route: str) -> bool:
    try:
        control.options(route)
    except HttpFailure as failure:
        return failure.status != 404
    return True


def _ask(control: ControlPlane, path: str, params: Mapping[str, Any] | None = None) -> Any:
    try:
        return control.get(path, params)
    except HttpFailure as failure:
        if failure.status in (404, 405):
            return None
        raise


def _field(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, Mapping) else None


def _part(body: Any, name: str) -> Mapping[str, Any]:
    part = _field(body, name)
    return part if isinstance(part, Mapping) else {}
