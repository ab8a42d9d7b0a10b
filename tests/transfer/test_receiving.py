from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from vst.transfer import receiving
from vst.transfer.receiving import Buffers, arriving
from vst.transfer.wire import LEAST_FRAME, cut


class Broadcasts:
    """A group whose broadcasts write the number of the call; ``gate`` holds them back from a call on."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.sizes: list[int] = []

    def broadcast(self, buffer: torch.Tensor) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise RuntimeError("connection reset by peer")
        self.sizes.append(buffer.numel())
        buffer.fill_(self.calls)


def test_a_buffer_is_used_again_when_nothing_looks_at_it() -> None:
    buffers = Buffers()
    first = buffers.take(1000)
    place = first.data_ptr()
    del first
    assert buffers.take(500).data_ptr() == place


def test_a_buffer_that_a_view_of_a_view_looks_at_is_left_alone() -> None:
    buffers = Buffers()
    first = buffers.take(4096)
    kept = first[64:128].view(torch.int16).view(4, 8)[1]
    first.fill_(7)
    del first
    for _ in range(10):
        other = buffers.take(4096)
        other.fill_(9)
    assert bytes(kept.view(torch.uint8).numpy()) == b"\x07" * 16


def test_buffers_are_as_many_as_were_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading keeps a layer's buckets, of several sizes, while more arrive; a new buffer is as many page faults."""
    made: list[int] = []
    slab = receiving.slab
    monkeypatch.setattr(receiving, "slab", lambda nbytes: made.append(nbytes) or slab(nbytes))
    layer: list[torch.Tensor] = []
    for _, buffer in arriving(Broadcasts(), cut([90, 120, 200, 150, 200] * 40, 64), 64):  # type: ignore[arg-type]
        layer = [*layer, buffer] if len(layer) < 4 else [buffer]
    # Five of a layer, the one of the loop, one that waits, one that arrives; and some that larger ones replaced.
    assert len(made) <= 16


def test_the_smallest_buffer_that_fits_is_taken_and_one_that_is_too_small_is_replaced() -> None:
    buffers = Buffers()
    large, small = buffers.take(5000), buffers.take(1000)
    places = {5000: large.data_ptr(), 1000: small.data_ptr()}
    del large, small
    first = buffers.take(900)
    assert first.data_ptr() == places[1000]
    assert buffers.take(900).data_ptr() == places[5000]
    del first
    wider = buffers.take(9000)
    assert len(buffers) == 2
    assert wider.numel() == 9000


def test_buckets_come_in_order_and_keep_their_bytes_as_long_as_they_are_looked_at() -> None:
    buckets = list(cut([100] * 20, 128))
    got = [(bucket.first, buffer) for bucket, buffer in arriving(Broadcasts(), buckets, 128)]  # type: ignore[arg-type]
    assert [first for first, _ in got] == list(range(20))
    assert [int(buffer[0]) for _, buffer in got] == list(range(1, 21))


def test_a_large_tensor_arrives_in_frames() -> None:
    group = Broadcasts()
    [(_, buffer)] = arriving(group, cut([2 * LEAST_FRAME + 5], 64), 64)  # type: ignore[arg-type]
    assert group.sizes == [LEAST_FRAME, LEAST_FRAME, 64]
    assert [int(buffer[at]) for at in (0, LEAST_FRAME, 2 * LEAST_FRAME)] == [1, 2, 3]


def test_the_next_bucket_arrives_while_one_is_loaded() -> None:
    second = threading.Event()

    class Telling(Broadcasts):
        def broadcast(self, buffer: torch.Tensor) -> None:
            super().broadcast(buffer)
            if self.calls == 2:
                second.set()

    for number, _ in enumerate(arriving(Telling(), cut([100] * 3, 128), 128)):  # type: ignore[arg-type]
        if number == 0:
            assert second.wait(10)


def test_a_group_that_breaks_is_an_error_after_what_had_arrived() -> None:
    seen: list[int] = []
    with pytest.raises(RuntimeError, match="reset by peer"):
        for bucket, _ in arriving(Broadcasts(fail_at=3), cut([100] * 9, 128), 128):  # type: ignore[arg-type]
            seen.append(bucket.first)
    assert seen == [0, 1]


def test_a_consumer_that_fails_ends_the_receiving() -> None:
    group = Broadcasts()
    before = threading.active_count()
    stream: Any = arriving(group, cut([100] * 9, 128), 128)  # type: ignore[arg-type]
    next(stream)
    stream.close()
    for thread in threading.enumerate()[before:]:
        thread.join(10)
        assert not thread.is_alive()
    assert group.calls < 9
