"""The machine block: host, processor, memory, GPUs, and the scheduler's names for where this runs."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from vst.provenance.block import Block

QUERY = ("index", "name", "uuid", "memory.total", "driver_version")
TIMEOUT_S = 20.0
SLURM = {
    "cluster": "SLURM_CLUSTER_NAME",
    "job": "SLURM_JOB_ID",
    "array_job": "SLURM_ARRAY_JOB_ID",
    "array_task": "SLURM_ARRAY_TASK_ID",
    "step": "SLURM_STEP_ID",
    "partition": "SLURM_JOB_PARTITION",
    "nodes": "SLURM_JOB_NODELIST",
}


def machine_facts(environment: Mapping[str, str]) -> dict[str, Any]:
    """What this process can see of the machine that it runs on."""
    gpus, why = gpu_facts()
    block = Block()
    block.put("host", platform.node() or None, "the system has no host name")
    block.put("system", f"{platform.system()} {platform.release()} {platform.machine()}")
    block.put("cpu", cpu_facts())
    block.put("memory_bytes", psutil.virtual_memory().total)
    block.put("gpus", gpus, why)
    return block.put("slurm", slurm_facts(environment), "SLURM_JOB_ID is not set: not a SLURM job").to_json()


def cpu_facts() -> dict[str, Any]:
    """The processor by the kernel's name, its cores, and how many of them this process may use."""
    block = Block()
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = sorted({line.partition(":")[2].strip() for line in lines if line.startswith("model name")})
    block.put("models", names or None, "/proc/cpuinfo names no model")
    block.put("cores", os.cpu_count(), "the system does not say")
    return block.put("usable", len(os.sched_getaffinity(0))).to_json()


def gpu_facts() -> tuple[list[dict[str, Any]] | None, str]:
    """The GPUs that ``nvidia-smi`` lists, or None and why."""
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        return None, "there is no nvidia-smi"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"nvidia-smi did not answer: {type(error).__name__}"
    if done.returncode:
        said = (done.stderr or done.stdout).strip().partition("\n")[0]
        return None, f"nvidia-smi ended with {done.returncode}: {said}"
    return read_gpus(done.stdout), ""


def read_gpus(text: str) -> list[dict[str, Any]]:
    """The lines of ``nvidia-smi --query-gpu --format=csv,noheader,nounits``; memory becomes bytes."""
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(QUERY):
            continue
        index, name, uuid, mebibytes, driver = fields
        memory = int(mebibytes) << 20 if mebibytes.isdigit() else None
        block = Block().put("index", index).put("name", name).put("uuid", uuid).put("driver", driver)
        gpus.append(block.put("memory_bytes", memory, f"nvidia-smi says {mebibytes}").to_json())
    return gpus


def slurm_facts(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The scheduler's ids of this job; None outside of one."""
    if not environment.get("SLURM_JOB_ID"):
        return None
    block = Block()
    for key, name in SLURM.items():
        block.put(key, environment.get(name) or None, f"{name} is not set")
    return block.to_json()
