"""vLLM's routes, each a function of the double and of one call; nothing here knows a socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vst.selftest import account
from vst.selftest.breaking import Answered
from vst.selftest.double_server import Double
from vst.selftest.generation import BadRequest


@dataclass(frozen=True)
class Call:
    """One request as it arrived; ``params`` holds the query, every value of a name."""

    method: str
    path: str
    params: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any

    def one(self, name: str, default: str) -> str:
        return self.params.get(name, [default])[0]

    def field(self, name: str, needed: bool = True) -> Any:
        if not isinstance(self.body, Mapping) or (needed and name not in self.body):
            raise BadRequest(f"the body needs a field {name}")
        return self.body.get(name)


Route = Callable[[Double, Call], Any]
"""Returns the body: JSON, or text when it is a string; None is an empty answer."""


def _true(text: str) -> bool:
    return text.lower() in ("1", "true", "yes", "on")


def _health(double: Double, call: Call) -> Any:
    if double.dead is not None:
        raise Answered(503, {"error": double.dead})
    return None


def _checksums(double: Double, call: Call) -> Any:
    if call.field("action") != "checksum":
        raise BadRequest("the scripted server has action checksum only")
    return {"checksums": double.checksums()}


def _set_label(double: Double, call: Call) -> Any:
    double.label = str(call.field("new_version"))
    return {"success": True, "new_version": double.label}


def _world(double: Double, call: Call) -> Any:
    whole = _true(call.one("include_dp", "true"))
    return {"world_size": double.world_size if whole else double.options.ranks}


ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/health"): _health,
    ("GET", "/version"): lambda double, call: {"version": account.version(double)},
    ("GET", "/v1/models"): lambda double, call: account.models(double),
    ("GET", "/server_info"): lambda double, call: account.server_info(double, call.one("config_format", "text")),
    ("GET", "/metrics"): lambda double, call: account.metrics(double),
    ("GET", "/get_world_size"): _world,
    ("GET", "/is_paused"): lambda double, call: {"is_paused": double.say("is_paused", double.paused())},
    ("GET", "/is_sleeping"): lambda double, call: {"is_sleeping": double.say("is_sleeping", double.sleeping())},
    ("GET", "/weight_info"): lambda double, call: {"weight_version": double.label},
    ("POST", "/pause"): lambda double, call: double.pause(
        call.one("mode", "abort"), _true(call.one("clear_cache", "true"))
    ),
    ("POST", "/resume"): lambda double, call: double.resume(),
    ("POST", "/abort_requests"): lambda double, call: double.abort_all(),
    ("POST", "/reset_prefix_cache"): lambda double, call: double.reset_prefix_cache(
        _true(call.one("reset_running_requests", "false"))
    ),
    ("POST", "/reset_mm_cache"): lambda double, call: None,
    ("POST", "/reset_encoder_cache"): lambda double, call: None,
    ("POST", "/sleep"): lambda double, call: double.sleep(int(call.one("level", "1")), call.one("mode", "abort")),
    ("POST", "/wake_up"): lambda double, call: double.wake(call.params.get("tags")),
    ("POST", "/release_kv_cache_memory"): lambda double, call: double.release_kv(),
    ("POST", "/init_weight_transfer_engine"): lambda double, call: double.init_transfer(call.field("init_info")),
    ("POST", "/start_weight_update"): lambda double, call: double.start_update(),
    ("POST", "/update_weights"): lambda double, call: double.update(call.field("update_info")),
    ("POST", "/finish_weight_update"): lambda double, call: double.finish(call.field("weight_version", needed=False)),
    ("POST", "/update_weight_version"): _set_label,
    ("POST", "/weight_checker"): _checksums,
}
COMPLETIONS = ("POST", "/v1/completions")
PATHS = {path for _, path in ROUTES} | {COMPLETIONS[1]}
