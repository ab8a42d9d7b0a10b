from __future__ import annotations

import pytest

from vst.errors import VerificationError
from vst.transfer.footprint import NCCL_BUCKET_BYTES, STAGE_BYTES, expect_room, gloo_footprint, nccl_footprint

MIB = 1 << 20


def test_a_gloo_sender_keeps_its_ring_and_no_tensor_beyond_it() -> None:
    found = gloo_footprint([1024 * MIB] * 9, 16 * MIB, 4)
    assert (found.slots, found.slot_bytes, found.sender, found.device) == (4, 16 * MIB, 64 * MIB, 0)
    assert found.largest_tensor == 1024 * MIB


def test_a_gloo_worker_keeps_the_bucket_that_it_loads_one_that_waits_and_one_that_arrives() -> None:
    assert gloo_footprint([1024 * MIB] * 9, 16 * MIB, 4).receiver == 3 * 1024 * MIB
    assert gloo_footprint([MIB] * 200, 16 * MIB, 4).receiver == 3 * 16 * MIB
    assert gloo_footprint([1024 * MIB, 3 * MIB, 64], 16 * MIB, 4).receiver == 1027 * MIB + 64


def test_a_small_checkpoint_has_a_small_ring() -> None:
    found = gloo_footprint([100, 100], 16 * MIB, 4)
    assert (found.slots, found.slot_bytes, found.receiver) == (1, 256, 256)


def test_nccl_stages_one_tensor_or_a_ring() -> None:
    sizes = [600 * MIB] * 10
    one = nccl_footprint(sizes, None, 4, pipelined=False)
    ring = nccl_footprint(sizes, None, 4, pipelined=True)
    assert one.sender == 600 * MIB and ring.sender == 4 * STAGE_BYTES
    assert one.receiver == ring.receiver == 2 * (NCCL_BUCKET_BYTES + 600 * MIB)
    assert ring.device - one.device == ring.sender


@pytest.mark.parametrize(("available", "same_host"), [(64 * MIB - 1, False), (112 * MIB - 1, True)])
def test_a_push_that_does_not_fit_is_refused_with_the_numbers(available: int, same_host: bool) -> None:
    found = gloo_footprint([MIB] * 200, 16 * MIB, 4)
    with pytest.raises(VerificationError, match=rf"{available} are available.*nothing was sent"):
        expect_room(found, available, same_host)
    expect_room(found, available + 1, same_host)


def test_a_gpu_without_room_is_refused() -> None:
    found = nccl_footprint([MIB] * 200, MIB, 4, pipelined=False)
    with pytest.raises(VerificationError, match="on the publisher's GPU"):
        expect_room(found, 1 << 40, False, found.device - 1)
    expect_room(found, 1 << 40, False, found.device)
