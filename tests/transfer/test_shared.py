"""Memory that publisher and workers share: who may write where, and when."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transfer.test_gloo import GOOD, bits, expect_arrived, filled, join
from transfer.workers import Direct, Worker
from vst.errors import TransportError, VerificationError
from vst.transfer.frames import Frame, plan_frames
from vst.transfer.regions import STEP, Regions, rounded
from vst.transfer.shared import SharedBuckets, SharedSpace
from vst.transfer.shared_file import Address, create, opened

KIB = 1 << 10


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5 * STEP), st.integers(0, 1 << 16)), max_size=40))
def test_regions_never_overlap_and_are_whole_again_when_all_came_back(steps: list[tuple[bool, int, int]]) -> None:
    regions, held, total = Regions(20 * STEP), [], 20 * STEP
    for take, nbytes, which in steps:
        if take and (begin := regions.take(nbytes)) is not None:
            assert 0 <= begin <= total - nbytes
            assert all(begin + nbytes <= at or at + size <= begin for at, size in held)
            held.append((begin, nbytes))
        elif held and not take:
            regions.give(*held.pop(which % len(held)))
    for one in held:
        regions.give(*one)
    assert regions.take(total) == 0


def test_a_region_that_does_not_fit_is_none_and_takes_nothing() -> None:
    regions = Regions(4 * STEP)
    assert regions.take(3 * STEP) == 0 and regions.take(2 * STEP) is None and regions.take(1) == 3 * STEP


def whole(nbytes: int) -> Frame:
    return Frame(nbytes, (), 0, nbytes)


class Ends:
    """A space for eight buckets of 1 KiB, two of them at a time, and the worker who looks at them."""

    def __init__(self, timeout_s: float = 20.0) -> None:
        self.space = SharedSpace([KIB] * 8, KIB, 2, 1, timeout_s)
        self.worker = SharedBuckets(self.space.address.to_json(), 0)

    def bring(self, value: int, wait: bool = False) -> torch.Tensor | None:
        """Fill a bucket and look at it in the worker; None if there is no room for it."""
        data = self.space.place(whole(KIB), wait)
        if data is None:
            return None
        data.fill_(value)
        return self.worker.bucket(self.space.announcement(whole(KIB), data), KIB)


def test_a_bucket_is_seen_where_it_was_written() -> None:
    ends = Ends()
    seen = ends.bring(7)
    assert seen is not None and seen.tolist() == [7] * KIB


def test_a_place_is_not_used_again_while_a_view_of_a_view_looks_at_it() -> None:
    ends = Ends()
    first, second = ends.bring(1), ends.bring(2)
    assert first is not None and second is not None
    kept = first.view(torch.int16)[3:9].view(2, 3)
    del first
    gc.collect()
    assert ends.bring(3) is None
    assert kept.tolist() == [[0x0101] * 3] * 2
    del kept
    third = ends.bring(3)
    assert third is not None and third.tolist() == [3] * KIB and second.tolist() == [2] * KIB


def test_workers_that_wait_for_more_get_more_than_the_limit() -> None:
    """They keep what they have until a layer is complete: without more it never would be."""
    ends = Ends()
    kept = []
    for value in range(5):
        kept.append(ends.bring(value, wait=True))
        ends.worker.loaded()
    assert [one[0].item() for one in kept if one is not None] == [0, 1, 2, 3, 4]
    assert ends.space.used == 5 * KIB


def test_no_more_than_the_limit_is_written_ahead_of_a_worker_that_is_busy() -> None:
    ends = Ends(timeout_s=0.2)
    kept = [ends.bring(1), ends.bring(2)]
    with pytest.raises(TransportError, match=r"gave no shared memory back for 0.2 s: 2048 bytes in 2 buckets"):
        ends.bring(3, wait=True)
    assert all(one is not None for one in kept)


def test_what_is_kept_from_push_to_push_is_never_written_over_and_too_much_is_refused_before_the_start() -> None:
    ends = Ends()
    kept = []
    for value in range(16):
        kept.append(ends.bring(value, wait=True))
        ends.worker.loaded()
    ends.space.expect_room([1], KIB)
    with pytest.raises(VerificationError, match="bytes of shared memory.*use transfer=gloo; nothing was sent"):
        ends.space.expect_room([4 << 20], KIB)
    assert [one[0].item() for one in kept if one is not None] == list(range(16))


def test_a_large_tensor_has_one_place_for_all_its_frames() -> None:
    size = (9 << 20) + 5
    space = SharedSpace([size], KIB, 2, 1, 5.0)
    worker = SharedBuckets(space.address.to_json(), 0)
    frames = list(plan_frames([size], KIB))
    assert len(frames) > 2
    sent = filled(torch.uint8, (frames[0].whole,), 1)
    for frame in frames:
        data = space.place(frame, wait=False)
        assert data is not None
        data.copy_(sent[frame.begin : frame.begin + frame.nbytes])
    seen = worker.bucket(space.announcement(frames[-1], data), frames[-1].whole)
    assert frames[-1].ends_bucket and bits(seen) == bits(sent)


def refuse_missing(address: Address) -> Address:
    return replace(address, path="/proc/self/fd/999999")


def refuse_other(address: Address) -> Address:
    return replace(address, nonce="00" * 16)


def refuse_length(address: Address) -> Address:
    return replace(address, nbytes=address.nbytes + STEP)


@pytest.mark.parametrize("change", [refuse_missing, refuse_other, refuse_length])
def test_a_worker_that_does_not_find_this_very_memory_refuses_and_says_what_to_use(
    change: Callable[[Address], Address],
) -> None:
    made = create(1, 4, STEP)
    with pytest.raises(ValueError, match="one machine and of one user; use transfer=gloo"):
        opened(change(made.address))
    assert opened(made.address).words[:16] == made.words[:16]


def test_the_memory_cannot_be_cut_under_those_who_look_at_it() -> None:
    made = create(1, 4, STEP)
    descriptor = os.open(made.address.path, os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def test_nothing_but_announcements_travels_when_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Direct(Worker())
    engine = join(client, GOOD, 1 << 20, shared=2)
    travelled: list[int] = []
    broadcast = engine._group.broadcast

    def count(buffer: torch.Tensor) -> None:
        travelled.append(buffer.nbytes)
        broadcast(buffer)

    monkeypatch.setattr(engine._group, "broadcast", count)
    engine.send_weights()
    expect_arrived(client.workers[0], GOOD)
    assert travelled == [16]


def test_a_worker_without_the_memory_is_an_error_at_the_join_and_not_a_wait() -> None:
    class Elsewhere(Direct):
        def init_weight_transfer_engine(self, init_info: dict[str, object]) -> None:
            shared = init_info["shared"]
            assert isinstance(shared, dict)
            super().init_weight_transfer_engine({**init_info, "shared": {**shared, "path": "/proc/self/fd/999999"}})

    with pytest.raises(ValueError, match="use transfer=gloo"):
        join(Elsewhere(Worker()), GOOD, 64, timeout_s=2.0, shared=2)


def test_room_is_rounded_so_that_each_bucket_has_its_own_pages() -> None:
    assert [rounded(nbytes) for nbytes in (1, STEP, STEP + 1)] == [STEP, STEP, 2 * STEP]


def test_a_worker_gives_back_from_any_thread() -> None:
    ends = Ends()
    kept = [ends.bring(1), ends.bring(2)]
    assert ends.bring(3) is None
    thread = Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert ends.bring(3) is not None
