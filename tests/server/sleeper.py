"""A server that has only the states of vLLM: flags, tags and the gauge, with a few ways of getting them wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from http_server import Call, HttpServer

from vst.server.lifecycle import RESETS

GAUGE = 'vllm:engine_sleep_state{{engine="{engine}",model_name="m",sleep_state="{state}"}} {value}\n'


@dataclass
class Sleeper:
    """``holds`` is what newer versions do in a partial wake; ``resumes`` what they do in a whole one."""

    holds: bool = True
    resumes: bool = True
    gauge: bool = True
    frozen_flag: bool = False
    engines: int = 1
    paused: bool = False
    level: int = 0
    tags: set[str] = field(default_factory=set)

    def routes(self) -> dict[str, Any]:
        return {
            "POST /pause": self._pause,
            "POST /resume": self._resume,
            "POST /sleep": self._sleep,
            "POST /wake_up": self._wake,
            "POST /abort_requests": {"status": "aborted", "aborted": 0},
            "GET /is_paused": lambda call: {"is_paused": self.paused},
            "GET /is_sleeping": lambda call: {"is_sleeping": self.paused or bool(self.tags)},
            "GET /metrics": lambda call: self.metrics(),
            **{f"POST {path}": {"success": True} for path in RESETS},
        }

    def serve(self) -> HttpServer:
        return HttpServer(self.routes())

    def metrics(self) -> str:
        values = {"awake": self.level == 0, "weights_offloaded": self.level == 1, "discard_all": self.level == 2}
        lines = [
            GAUGE.format(engine=engine, state=state, value=float(value))
            for engine in range(self.engines)
            for state, value in values.items()
        ]
        return "".join(lines) if self.gauge else ""

    def _pause(self, call: Call) -> Any:
        self.paused = True
        return {"status": "paused"}

    def _resume(self, call: Call) -> Any:
        self.paused = False
        return {"status": "resumed"}

    def _sleep(self, call: Call) -> Any:
        if not self.frozen_flag:
            self.paused, self.level, self.tags = True, int(call.params["level"]), {"weights", "kv_cache"}
        return {"status": "sleeping"}

    def _wake(self, call: Call) -> Any:
        self.tags -= {call.params["tags"]} if "tags" in call.params else {"weights", "kv_cache"}
        if not self.tags:
            self.level = 0
            self.paused = self.paused and not self.resumes
        elif not self.holds:
            self.paused = False
        return {"status": "awake" if not self.tags else "sleeping"}
