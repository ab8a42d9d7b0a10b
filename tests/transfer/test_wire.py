from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vst.transfer.wire import ALIGNMENT, aligned, cut

SIZES = st.lists(st.integers(0, 5_000), max_size=60)
BUCKETS = st.integers(1, 20_000)


@given(SIZES, BUCKETS)
@example([0], 1)
@example([], 1)
@example([1, 8, 0, 64, 65], 64)
def test_every_tensor_is_in_one_bucket_and_the_order_is_kept(sizes: list[int], bucket_bytes: int) -> None:
    seen = [bucket.first + index for bucket in cut(sizes, bucket_bytes) for index in range(len(bucket.offsets))]
    assert seen == list(range(len(sizes)))


@given(SIZES, BUCKETS)
def test_tensors_lie_aligned_inside_their_bucket_without_overlap(sizes: list[int], bucket_bytes: int) -> None:
    for bucket in cut(sizes, bucket_bytes):
        end = 0
        for index, offset in enumerate(bucket.offsets, bucket.first):
            assert offset % ALIGNMENT == 0 and offset >= end
            end = offset + sizes[index]
        assert end <= bucket.nbytes


@given(SIZES, BUCKETS)
def test_only_a_bucket_of_one_tensor_is_larger_than_asked(sizes: list[int], bucket_bytes: int) -> None:
    for bucket in cut(sizes, bucket_bytes):
        assert bucket.nbytes <= bucket_bytes or len(bucket.offsets) == 1


@given(SIZES, BUCKETS)
def test_a_bucket_is_closed_only_by_a_tensor_that_did_not_fit(sizes: list[int], bucket_bytes: int) -> None:
    buckets = list(cut(sizes, bucket_bytes))
    for bucket, following in zip(buckets, buckets[1:], strict=False):
        assert bucket.nbytes + aligned(sizes[following.first]) > bucket_bytes


@given(SIZES, BUCKETS)
def test_both_ends_cut_alike_from_the_same_sizes(sizes: list[int], bucket_bytes: int) -> None:
    assert list(cut(sizes, bucket_bytes)) == list(cut(tuple(sizes), bucket_bytes))


@given(st.integers(0, 1 << 50))
def test_alignment_rounds_up_by_less_than_one_step(nbytes: int) -> None:
    assert aligned(nbytes) % ALIGNMENT == 0 and 0 <= aligned(nbytes) - nbytes < ALIGNMENT


@pytest.mark.parametrize("bucket_bytes", [0, -1])
def test_a_bucket_without_room_is_refused(bucket_bytes: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        list(cut([1], bucket_bytes))
