"""The command line and environment of a vLLM server that we start. Pure functions; nothing runs here."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEVELOPMENT_ROUTES = {"VLLM_SERVER_DEV_MODE": "1"}
SCRIPTED = "scripted"
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
    launch_prefix: tuple[str, ...] = ()
    speculative: Mapping[str, Any] | None = None

    @property
    def world_size(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


def flags(spec: ServerSpec, draft: Path | None = None) -> list[str]:
    """The serving flags without checkpoint, host, port and served name: what a reference is keyed by.

    ``draft`` is the checkpoint of the draft of a server that has one.
    """
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
    if spec.speculative is not None:
        where = {"model": str(draft)} if draft is not None else {}
        out += ["--speculative-config", json.dumps({**where, **spec.speculative})]
    return [*out, *spec.args]


def command(spec: ServerSpec, model: Path, host: str, port: int, name: str, draft: Path | None = None) -> list[str]:
    """The server's command. The CPU build has no ``vllm`` distribution, so the module is started; both have it.

    A server of kind ``scripted`` is no vLLM but our own double, which takes the same flags.
    """
    module = "vst.selftest" if spec.kind == SCRIPTED else "vllm.entrypoints.openai.api_server"
    return [
        *spec.launch_prefix,
        *(sys.executable, "-m", module),
        *("--model", str(model), "--served-model-name", name),
        *("--host", host, "--port", str(port)),
        *flags(spec, draft),
    ]


SCHEDULER = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SUBMITIT_")

ON_NODE = (
    'unset "${!SLURM@}" "${!SBATCH@}" "${!SRUN@}" "${!SUBMITIT@}"; '
    '[ "$0" = 0 ] || export CUDA_VISIBLE_DEVICES=$(cut -d, -f"1-$0" <<<"${CUDA_VISIBLE_DEVICES:-}"); exec "$@"'
)
"""What a launch prefix starts on every node: no variable of the scheduler, and the first GPUs of those it got there."""


def without_scheduler(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a scheduler sets for the job: a child would take it for its own."""
    return {key: value for key, value in env.items() if not key.startswith(SCHEDULER)}


def launch_prefix(words: Sequence[str], hosts: Sequence[str], devices: int) -> tuple[str, ...]:
    """``server.launch_prefix`` with its names filled in, and what makes each node ready after it.

    ``{head}`` is the first host of the job, ``{hosts}`` all of them with commas, ``{nodes}`` their number. ``devices``
    is how many GPUs of its node the server uses; 0 leaves them as they are.
    """
    if not words:
        return ()
    named = {"{head}": (hosts or ("127.0.0.1",))[0], "{hosts}": ",".join(hosts), "{nodes}": str(max(len(hosts), 1))}
    filled = [word for word in words]
    for name, value in named.items():
        filled = [word.replace(name, value) for word in filled]
    return (*filled, "bash", "-c", ON_NODE, str(devices))


def environment(spec: ServerSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: the inherited one without the scheduler's variables, ours, then ``server.env``."""
    # A prefix such as srun needs them; what it starts gets rid of them itself.
    kept = dict(inherited) if spec.launch_prefix else without_scheduler(inherited)
    # vLLM would ask for the key of another server that this variable belongs to.
    kept.pop("VLLM_API_KEY", None)
    device = {"VLLM_TARGET_DEVICE": "cpu"} if spec.kind == "cpu" else {}
    return {**kept, **DEVELOPMENT_ROUTES, **OFFLINE, **device, **spec.env}


RESERVED = (
    *("--model", "--served-model-name", "--host", "--port", "--uds", "--api-key", "--config"),
    *("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--weight-transfer-config"),
)
"""What ``command`` sets itself, what would open another door, and the key, which the evidence would show."""

SHORT = re.compile(r"-(tp|pp|dp)\d*")


def reserved(argv: Sequence[str]) -> list[str]:
    """Arguments in ``server.args`` that would replace one of ours, in any of the spellings that vLLM takes.

    ``--a_b``, ``--a-b=value``, ``--a-b.key`` and unambiguous beginnings of a flag all mean ``--a-b``.
    """
    return sorted({arg for arg in argv if _is_reserved(arg)})


def _is_reserved(arg: str) -> bool:
    name = arg.partition("=")[0].partition(".")[0].replace("_", "-")
    return bool(SHORT.fullmatch(name)) or (len(name) > 2 and any(flag.startswith(name) for flag in RESERVED))
