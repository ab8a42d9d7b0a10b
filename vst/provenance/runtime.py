"""The runtime block: image, versions, the servers' command lines, and the part of the environment that may be shown."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from vst.provenance.block import Block
from vst.provenance.redaction import MASK, Scrubber, looks_secret

DISTRIBUTIONS = ("vllm-state-transition-verifier", "hydra-core", "omegaconf", "httpx", "numpy", "safetensors")
SHOWN = (
    "CONDA_DEFAULT_ENV", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME", "HF_HOME", "HF_HUB_OFFLINE", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "MKL_NUM_THREADS", "NCCL_ALGO", "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_IB_HCA",
    "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME",
    "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONHASHSEED", "PYTHONPATH", "ROCR_VISIBLE_DEVICES",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TRANSFORMERS_OFFLINE", "TZ", "VIRTUAL_ENV", "VLLM_ATTENTION_BACKEND",
    "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_DO_NOT_TRACK", "VLLM_HOST_IP", "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "VLLM_PLUGINS",
    "VLLM_SERVER_DEV_MODE", "VLLM_TARGET_DEVICE", "VLLM_USE_V1", "VLLM_WORKER_MULTIPROC_METHOD", "VST_CACHE",
    "VST_RUNS",
)  # fmt: skip
"""The only variables that are ever written down, besides those that the user gives in ``server.env``."""


def shown_environment(
    environment: Mapping[str, str], scrubber: Scrubber, declared: Sequence[str] = ()
) -> dict[str, str]:
    """The allow-listed variables and the ``declared`` ones; the value of a secret name is masked."""
    names = sorted({*SHOWN, *declared} & set(environment))
    return {name: MASK if looks_secret(name) else scrubber.text(environment[name]) for name in names}


def runtime_facts(
    environment: Mapping[str, str],
    scrubber: Scrubber,
    libraries: Mapping[str, Any] | None,
    servers: Sequence[Mapping[str, Any]],
    image: str | None,
    gpus: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """``libraries`` is what the publisher reported, ``servers`` what was started, ``image`` the snapshot's digest."""
    block = Block()
    block.put("image", image, "no snapshot with an image digest was given, and a process cannot see its own image")
    block.put("python", platform.python_version()).put("executable", sys.executable)
    block.put("packages", {name: installed for name in DISTRIBUTIONS if (installed := _installed(name))})
    driver = gpus[0]["driver"] if gpus else None
    block.put("driver", driver, "no GPU was seen: see machine.gpus")
    block.put("publisher", _publisher(libraries), "no publisher ran, so torch and vLLM were not imported")
    block.put("servers", list(servers) or None, "this run started no server")
    return block.put("environment", shown_environment(environment, scrubber)).to_json()


def server_facts(
    label: str, argv: Sequence[str] | None, environment: Mapping[str, str], declared: Sequence[str], scrubber: Scrubber
) -> dict[str, Any]:
    """One server: its launch command and environment if this run started it; ``argv`` None for an attached one."""
    block = Block().put("label", label)
    why = "the server was attached: it was started by somebody else"
    block.put("argv", scrubber.foreign_tree(list(argv)) if argv is not None else None, why)
    shown = shown_environment(environment, scrubber, declared) if argv is not None else None
    return block.put("environment", shown, why).to_json()


def _publisher(libraries: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if libraries is None:
        return None
    block = Block()
    for key in ("vllm", "torch", "python"):
        block.put(key, libraries.get(key), "the publisher did not report it")
    block.put("cuda", libraries.get("cuda"), f"torch {libraries.get('torch')} was built without CUDA")
    block.put("nccl", libraries.get("nccl"), "torch was built without CUDA, or does not tell NCCL's version")
    imports = Block()
    for name in ("vst", "vllm"):
        imports.put(name, (libraries.get("imports") or {}).get(name), "the publisher did not report it")
    return block.put("imports", imports.to_json()).to_json()


@lru_cache
def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
