"""On which processors threads may run: near the GPU that they feed, or anywhere that the process may.

Linux lets a thread inherit where it may run from the one that made it. A vLLM worker on a CPU is bound to one core by
default, and so would be whatever receives for it: receiving, loading and the loops of gloo would take turns on a core.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYSFS = Path("/sys")


@contextmanager
def like_parent() -> Iterator[None]:
    """Threads that are made inside may also run where the parent process may."""
    mine = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, mine | os.sched_getaffinity(os.getppid()))
    except OSError:
        # The parent is gone, or its processors are not ours: then they stay where they are.
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def bind_near(pci_address: str, sysfs: Path = SYSFS) -> int | None:
    """Keep this thread, and those that it makes, on the NUMA node of a PCI device such as ``0000:3b:00.0``.

    Returns the node; None, and nothing is bound, where the device has none, or none of its processors is ours.
    """
    node = _number(sysfs / "bus/pci/devices" / pci_address.lower() / "numa_node")
    if node is None or node < 0:
        return None
    try:
        near = cpu_list((sysfs / f"devices/system/node/node{node}/cpulist").read_text())
    except (OSError, ValueError):
        return None
    ours = near & os.sched_getaffinity(0)
    if not ours:
        return None
    os.sched_setaffinity(0, ours)
    return node


def cpu_list(text: str) -> set[int]:
    """The numbers of a list such as ``0-3,8``; ValueError if it is none. Source: cpuset(7), "List format"."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if part:
            found.update(range(int(first), int(last or first) + 1))
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def pci_address(device: str) -> str:
    """The PCI address of a CUDA device, as sysfs writes it."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    return f"{domain:04x}:{bus:02x}:{slot:02x}.0"
