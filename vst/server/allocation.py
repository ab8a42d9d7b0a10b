"""What a scheduler gave to this process, and how a run divides it: the one place that reads the scheduler's variables.

The server gets the first GPUs of the allocation and the publisher the next one. Outside a job nothing is divided: the
configuration says which GPUs are whose.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from vst.config import VstConf
from vst.errors import VerificationError

VISIBLE = "CUDA_VISIBLE_DEVICES"


class TooFewDevices(VerificationError):
    """The allocation has fewer GPUs than server and publisher need; nothing was started."""


@dataclass(frozen=True)
class Allocation:
    """The GPUs that this process may use, by the names that CUDA knows them by, and the hosts of the job in order.

    ``devices`` is None where nothing limits them; ``hosts`` is empty outside a job.
    """

    devices: tuple[str, ...] | None
    hosts: tuple[str, ...]

    @property
    def in_job(self) -> bool:
        return bool(self.hosts)


def read_allocation() -> Allocation:
    """The allocation as this process's environment describes it."""
    visible = os.environ.get(VISIBLE)
    devices = tuple(name.strip() for name in visible.split(",") if name.strip()) if visible is not None else None
    if "SLURM_JOB_ID" not in os.environ:
        return Allocation(devices, ())
    from submitit.slurm.slurm import SlurmJobEnvironment

    return Allocation(devices or (), tuple(SlurmJobEnvironment().hostnames))


@dataclass(frozen=True)
class Split:
    """Who uses which GPUs. ``server`` and ``publisher`` are values of CUDA_VISIBLE_DEVICES, None leaves it as it is.

    ``device`` is the publisher's device as torch names it, ``gpu`` the same by the GPU's own name (``cuda:NAME``).
    """

    server: tuple[str, ...] | None
    publisher: tuple[str, ...] | None
    device: str
    gpu: str


def server_devices(conf: VstConf, nodes: int) -> int:
    """How many GPUs the servers of ours need on each node."""
    server = conf.server
    if server.kind != "gpu":
        return 0
    world = server.tensor_parallel_size * server.pipeline_parallel_size * server.data_parallel_size
    return -(-world // (nodes if server.launch_prefix else 1)) * server.replicas


def devices_needed(conf: VstConf, nodes: int) -> int:
    """How many GPUs a job needs on a node: the server's and one for the publisher; 0 for a lane without a server."""
    if conf.lane.upto == "L0" and conf.lane.name != "publish":
        return 0
    return server_devices(conf, nodes) + (conf.publisher.device != "cpu")


def split(conf: VstConf, allocation: Allocation) -> Split:
    """Divide the allocation. Raises TooFewDevices, which says how many there are and how many are needed."""
    device = conf.publisher.device
    declared = tuple(conf.server.devices) or None
    if not allocation.in_job or declared is not None:
        return Split(declared, None, device, _own_name(device, allocation.devices))
    found, needed = allocation.devices or (), devices_needed(conf, len(allocation.hosts))
    if len(found) < needed:
        raise TooFewDevices(
            f"the job has {len(found)} GPU(s) on this node ({', '.join(found) or 'none'}), needed are {needed}: "
            f"{server_devices(conf, len(allocation.hosts))} for the server, the rest for the publisher; "
            "book more (hydra.launcher.gpus_per_node) or make the server smaller"
        )
    count = server_devices(conf, len(allocation.hosts))
    server = found[:count] if conf.server.kind == "gpu" else None
    if device == "cpu":
        return Split(server, None, device, device)
    # A device other than the default was chosen by hand; server.devices will judge it.
    own = found[count] if device == "cuda:0" else _own_name(device, found).partition(":")[2]
    return Split(server, (own,), "cuda:0", f"cuda:{own}")


def _own_name(device: str, devices: tuple[str, ...] | None) -> str:
    """``cuda:NAME`` for ``cuda:N``: CUDA counts among the visible GPUs only."""
    kind, _, number = device.partition(":")
    index = int(number or 0) if kind == "cuda" and (number or "0").isdigit() else None
    if index is None or devices is None or index >= len(devices):
        return device
    return f"cuda:{devices[index]}"
