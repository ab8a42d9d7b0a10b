"""What is wrong with a single value: not one of the choices, too small, no finite number, no port."""

from __future__ import annotations

import math
import re
from typing import Any

from vst.checkpoint.zoo.catalogue import CATALOGUE, PREFIX
from vst.config.schema import FAULTS, LANES, OPERATIONS, VstConf
from vst.server.launch import SCRIPTED

ENDURANCE_S = ("fault_push_s", "hang_s", "limit_s", "quiet_s")
MEMORY = r"metric:[A-Za-z_:][A-Za-z0-9_:]*|pid:[0-9]+|device"
CONSOLES = ("auto", "plain", "json")


def wrong_values(conf: VstConf) -> list[str]:
    """One line for each value that cannot be, with what could."""
    found = [
        f"{key}={value}: expected one of {', '.join(str(option) for option in options)}"
        for key, (value, options) in _choices(conf).items()
        if value not in options
    ]
    least = _least(conf).items()
    found += [f"{key}={value}: must be at least {bound}" for key, (value, bound) in least if value < bound]
    found += [f"{key}={value}: must be positive" for key, value in _positive(conf).items() if not 0 < value < math.inf]
    ports = {"server.port": conf.server.port, "transfer.port": conf.transfer.port}
    found += [f"{key}={port}: must be from 0 (any) to 65535" for key, port in ports.items() if not 0 <= port <= 65535]
    if not re.fullmatch(r"cpu|cuda(:\d+)?", conf.publisher.device):
        found.append(f"publisher.device={conf.publisher.device}: expected cpu or cuda:N")
    if conf.server.memory and not re.fullmatch(MEMORY, conf.server.memory):
        found.append(f"server.memory={conf.server.memory}: expected metric:NAME, pid:N or device")
    unknown = sorted(set(conf.endurance.faults) - set(FAULTS))
    if unknown:
        found.append(f"endurance.faults={unknown}: expected some of {', '.join(FAULTS)}")
    if not 0 <= conf.load.stream_share <= 1:
        found.append(f"load.stream_share={conf.load.stream_share}: a share is from 0 to 1")
    return found


def _choices(conf: VstConf) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    return {
        "lane.name": (conf.lane.name, (*LANES, "ladder", *OPERATIONS)),
        "lane.upto": (conf.lane.upto, LANES),
        "lane.final": (conf.lane.final, ("checkpoint", "model")),
        "lane.pause_mode": (conf.lane.pause_mode, ("abort", "wait", "keep")),
        "server.kind": (conf.server.kind, ("cpu", "gpu", "attach", SCRIPTED)),
        "transfer.backend": (conf.transfer.backend, ("vst_gloo", "nccl")),
        "transfer.staging": (conf.transfer.staging, ("tensor", "pipelined")),
        "checkpoint.finite": (conf.checkpoint.finite, ("auto", "always", "never")),
        "console": (conf.console, CONSOLES),
        "model.generate": (conf.model.generate, (None, "tiny", *(f"{PREFIX}{name}" for name in CATALOGUE))),
        "server.capabilities.sleep": (conf.server.capabilities.sleep, ("memory", "flags", "none")),
        **{
            f"lifecycle.admission.{key}": (value, ("held", "refused", "either"))
            for key, value in vars(conf.lifecycle.admission).items()
        },
    }


def _least(conf: VstConf) -> dict[str, tuple[int | float, int]]:
    """What has to be at least so much."""
    least: dict[str, tuple[int | float, int]] = {
        "lane.identities": (conf.lane.identities, 2),
        "lane.cycles": (conf.lane.cycles, 1),
        "oracle.repeats": (conf.oracle.repeats, 2),
        "oracle.probes": (conf.oracle.probes, 1),
        "oracle.min_tokens": (conf.oracle.min_tokens, 2),
        "oracle.output_tokens": (conf.oracle.output_tokens, 1),
        "server.tensor_parallel_size": (conf.server.tensor_parallel_size, 1),
        "server.pipeline_parallel_size": (conf.server.pipeline_parallel_size, 1),
        "server.data_parallel_size": (conf.server.data_parallel_size, 1),
        "server.replicas": (conf.server.replicas, 1),
        "oracle.max_tokens": (conf.oracle.max_tokens, conf.oracle.min_tokens),
        "oracle.top_k": (conf.oracle.top_k, 1),
        "oracle.search": (conf.oracle.search, 0),
        "endurance.cycles": (conf.endurance.cycles, 1),
        "endurance.answers": (conf.endurance.answers, 1),
        "load.prompts": (conf.load.prompts, 1),
        "load.min_tokens": (conf.load.min_tokens, 2),
        "load.max_tokens": (conf.load.max_tokens, conf.load.min_tokens),
        "load.output_tokens": (conf.load.output_tokens, 2),
        "load.concurrency": (conf.load.concurrency, 1),
        "load.max_in_flight": (conf.load.max_in_flight, 1),
        "load.max_requests": (conf.load.max_requests, 1),
        "load.rounds": (conf.load.rounds, 2),
        "transfer.ring": (conf.transfer.ring, 2),
        "transfer.timeouts.min_bytes_per_s": (conf.transfer.timeouts.min_bytes_per_s, 1),
        "model.draft_tokens": (conf.model.draft_tokens, 1),
    }
    counts = {f"lane.{key}": getattr(conf.lane, key) for key in ("seeds", "parallel", "pushes")}
    least |= {key: (value, 1) for key, value in counts.items() if value is not None}
    return least


def _positive(conf: VstConf) -> dict[str, float]:
    """What has to be a finite positive number where it is set."""
    timeouts, transfer, load = conf.transfer.timeouts, conf.transfer, conf.load
    values = {
        **{f"transfer.timeouts.{name}": value for name, value in vars(timeouts).items()},
        "transfer.bucket_bytes": transfer.bucket_bytes,
        "transfer.rate_limit_bytes_per_s": transfer.rate_limit_bytes_per_s,
        "server.start_timeout_s": conf.server.start_timeout_s,
        "server.request_timeout_s": conf.server.request_timeout_s,
        "server.max_model_len": conf.server.max_model_len,
        **{f"endurance.{name}": getattr(conf.endurance, name) for name in ENDURANCE_S},
        "endurance.memory_share": conf.endurance.memory_share,
        "endurance.memory_least_bytes": conf.endurance.memory_least_bytes,
        "lane.row_timeout_s": conf.lane.row_timeout_s,
        "lifecycle.quiet_s": conf.lifecycle.quiet_s,
        "load.rate_per_s": load.rate_per_s,
        "load.request_s": load.request_s,
        "load.load_s": load.load_s,
        "load.drain_s": load.drain_s,
        "load.settle_s": load.settle_s,
    }
    return {key: value for key, value in values.items() if value is not None}
