"""The command line and environment of a vLLM server that we start. Pure functions; nothing runs here."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEVELOPMENT_ROUTES = {"VLLM_SERVER_DEV_MODE": "1"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1"}


@dataclass(frozen=True)
class ServerSpec:
    """What has to be the same in two servers whose answers are compared: everything but the checkpoint and the port."""

    kind: str
    backend: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    max_model_len: int | None
    dtype: str | None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


def flags(spec: ServerSpec) -> list[str]:
    """The serving flags without checkpoint, host, port and served name: what a reference is keyed by."""
    out = [
        *("--tensor-parallel-size", str(spec.tensor_parallel_size)),
        *("--pipeline-parallel-size", str(spec.pipeline_parallel_size)),
        *("--data-parallel-size", str(spec.data_parallel_size)),
        *("--weight-transfer-config", json.dumps({"backend": spec.backend})),
        "--enable-prompt-tokens-details",
    ]
    if spec.max_model_len is not None:
        out += ["--max-model-len", str(spec.max_model_len)]
    if spec.dtype is not None:
        out += ["--dtype", spec.dtype]
    return [*out, *spec.args]


def command(spec: ServerSpec, model: Path, host: str, port: int, name: str) -> list[str]:
    """The server's command. The CPU build has no ``vllm`` distribution, so the module is started; both have it."""
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", name),
        *("--host", host, "--port", str(port)),
        *flags(spec),
    ]


def environment(spec: ServerSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: the inherited one without the scheduler's variables, ours, then ``server.env``."""
    kept = {key: value for key, value in inherited.items() if not key.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
    # vLLM would ask for the key of another server that this variable belongs to.
    kept.pop("VLLM_API_KEY", None)
    device = {"VLLM_TARGET_DEVICE": "cpu"} if spec.kind == "cpu" else {}
    return {**kept, **DEVELOPMENT_ROUTES, **OFFLINE, **device, **spec.env}


def reserved(argv: Sequence[str]) -> list[str]:
    """Arguments in ``server.args`` that would replace one of ours, which the verdict depends on."""
    ours = {"--model", "--host", "--port", "--weight-transfer-config", "--served-model-name"}
    return sorted(ours & {arg.partition("=")[0] for arg in argv})
