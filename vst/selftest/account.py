"""What the double says of itself: version, models, ``/server_info`` and ``/metrics``. Never that it is a vLLM."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from vst.selftest.double import MARK, SAYS, version_of
from vst.selftest.double_server import Double
from vst.selftest.prefix_cache import BLOCK

STATES = ("awake", "weights_offloaded", "discard_all")


def version(double: Double) -> str:
    moved = [f for f in double.options.faults if f.kind == "version_moves" and double.served >= f.after]
    return version_of(moved[0].label if moved else double.options.vllm)


def models(double: Double) -> dict[str, Any]:
    options = double.options
    one = {
        "id": options.name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": MARK,
        "root": str(options.model),
        "parent": None,
        "max_model_len": options.max_model_len,
    }
    return {"object": "list", "data": [one]}


def server_info(double: Double, config_format: str) -> dict[str, Any]:
    """The configuration in the form of vLLM's, as far as the double has one."""
    options = double.options
    config = {
        "scripted": SAYS,
        "instance_id": double.instance_id,
        "model_config": {"model": str(options.model), "max_model_len": options.max_model_len},
        "cache_config": {"enable_prefix_caching": options.prefix_caching, "block_size": BLOCK},
        "parallel_config": {"ranks": options.ranks, "data_parallel_size": options.replicas},
        "weight_transfer_config": {"backend": options.backend},
        "memory": {"weights": options.weights_bytes, "kv_cache": options.kv_bytes},
    }
    system = {"torch_version": str(torch.__version__), "system": SAYS}
    return {
        "vllm_config": config if config_format == "json" else str(config),
        "vllm_env": {},
        "system_env": system,
    }


def metrics(double: Double) -> str:
    """The gauges that a run reads, in Prometheus' text format."""
    lines = [
        f"process_start_time_seconds {double.start_time:.3f}",
        f"process_resident_memory_bytes {resident()}",
        f"vst_scripted_memory_bytes {sum(replica.bytes_held for replica in double.replicas)}",
    ]
    for engine in double.engines:
        labels = f'engine="{engine.replica.number}",model_name="{double.options.name}"'
        for state, value in _gauge(double):
            lines.append(f'vllm:engine_sleep_state{{{labels},sleep_state="{state}"}} {value}')
        lines += [
            f"vllm:num_requests_running{{{labels}}} {float(len(engine.running))}",
            f"vllm:num_requests_waiting{{{labels}}} {float(len(engine.waiting))}",
            f"vllm:kv_cache_usage_perc{{{labels}}} {min(1.0, len(engine.replica.cache) / 4096)}",
        ]
    return "\n".join(lines) + "\n"


def _gauge(double: Double) -> list[tuple[str, float]]:
    asleep, level = double.gauge
    awake = double.say("gauge", not asleep)
    truth = {"awake": awake, "weights_offloaded": not awake and level == 1, "discard_all": not awake and level == 2}
    return [(state, float(truth[state])) for state in STATES]


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
