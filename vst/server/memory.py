"""How many bytes a server uses, and where that number comes from.

Three sources: the resident memory of a process and all its descendants, the memory in use on the server's GPUs by
``nvidia-smi``, or a metric that the server exports itself. None of them is guessed for a server that we did not start.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from vst.errors import TransportError, VerificationError
from vst.server.client import ControlPlane

SMI = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
SMI_TIMEOUT_S = 20.0
MIB = 1 << 20


@dataclass(frozen=True)
class Source:
    """Where bytes are read. ``device`` says that they are device memory, in which a copy on the host does not count."""

    name: str
    device: bool
    read: Callable[[], int]


def resident(pid: int) -> Source:
    """The resident memory of a process and its descendants; memory that they share is counted for each."""
    return Source(f"resident memory of process {pid} and its descendants", False, lambda: _resident(pid))


def _resident(pid: int) -> int:
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error as error:
        raise TransportError(f"the memory of process {pid} cannot be read: {error}") from error
    return sum(map(_bytes, family))


def _bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def devices(names: Sequence[str]) -> Source:
    """The memory in use on these GPUs, by index or UUID, whoever uses it."""
    if not names:
        raise VerificationError("which GPUs the server uses is not declared: set server.devices")
    return Source(f"memory in use on GPU {', '.join(names)} by nvidia-smi", True, lambda: _devices(names))


def _devices(names: Sequence[str]) -> int:
    command = [*SMI, "-i", ",".join(names)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=True)
        values = [int(line) for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise TransportError(f"{' '.join(command)}: {error}") from error
    if len(values) != len(names):
        raise TransportError(f"{' '.join(command)}: {len(values)} values for {len(names)} GPUs")
    return sum(values) * MIB


def metric(control: ControlPlane, name: str) -> Source:
    """The sum of a metric of the server over all its labels, in bytes; taken as what is held where memory sleeps."""
    return Source(f"metric {name} of {control.base_url}/metrics", True, lambda: _metric(control, name))


def _metric(control: ControlPlane, name: str) -> int:
    text = control.get("/metrics")
    pattern = rf"^{re.escape(name)}(?:\{{[^}}]*\}})?\s+(\S+)"
    try:
        values = [float(value) for value in re.findall(pattern, str(text), re.MULTILINE)]
        total = int(sum(values))
    except (ValueError, OverflowError) as error:
        raise TransportError(f"metric {name}: {error}") from error
    if not values:
        raise TransportError(f"{control.base_url}/metrics has no {name}: see server.memory")
    return total
