from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vst.transfer.affinity import bind_near, cpu_list, like_parent


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def in_thread() -> set[int]:
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a thread cannot be bound to a part of one processor")
def test_a_thread_of_a_bound_one_may_run_where_the_parent_process_may() -> None:
    everywhere = os.sched_getaffinity(os.getppid())
    one = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, one)
    assert in_thread() == one
    with like_parent():
        assert in_thread() == everywhere | one
    assert os.sched_getaffinity(0) == one


def test_a_parent_that_is_gone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 2**22 + 1)
    before = os.sched_getaffinity(0)
    with like_parent():
        assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("text", "expected"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set()), ("0-1,4-5", {0, 1, 4, 5})]
)
def test_a_list_of_processors_is_read_as_the_kernel_writes_it(text: str, expected: set[int]) -> None:
    assert cpu_list(text) == expected


def sysfs(root: Path, node: str, cpus: str) -> Path:
    device = root / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text(node)
    place = root / f"devices/system/node/node{node.strip()}"
    place.mkdir(parents=True)
    (place / "cpulist").write_text(cpus)
    return root


def test_readers_are_bound_to_the_node_of_the_gpu(tmp_path: Path) -> None:
    one = max(os.sched_getaffinity(0))
    assert bind_near("0000:3B:00.0", sysfs(tmp_path, "1\n", f"{one}\n")) == 1
    assert os.sched_getaffinity(0) == {one}


@pytest.mark.parametrize(("node", "cpus"), [("-1\n", "0"), ("1\n", "4000-4001"), ("1\n", "no list"), ("none", "0")])
def test_what_has_no_node_of_ours_is_not_bound(tmp_path: Path, node: str, cpus: str) -> None:
    before = os.sched_getaffinity(0)
    assert bind_near("0000:3b:00.0", sysfs(tmp_path, node, cpus)) is None
    assert os.sched_getaffinity(0) == before
