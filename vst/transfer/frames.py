"""What the sender fills and sends at a time: the frames of an update, and which bytes of which tensor lie where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vst.transfer.wire import cut
from vst.transfer.wire import frames as cut_bucket


@dataclass(frozen=True, slots=True)
class Span:
    """``nbytes`` bytes of the tensor at position ``index``, from its byte ``start`` on, at ``offset`` of the frame."""

    index: int
    start: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One broadcast of ``nbytes`` bytes, padding included, and the tensors or the part of one that it brings.

    A tensor that is larger than a frame has several; all but the first of these continue it.
    """

    nbytes: int
    spans: tuple[Span, ...]

    @property
    def continues(self) -> bool:
        """Whether its first bytes are not the first of a tensor."""
        return bool(self.spans) and self.spans[0].start > 0


def plan_frames(sizes: Sequence[int], bucket_bytes: int) -> Iterator[Frame]:
    """The frames of an update of tensors of ``sizes`` bytes, in the order in which they are broadcast.

    A frame of no bytes is not broadcast; it is there for the empty tensors that it brings.
    """
    for bucket in cut(sizes, bucket_bytes):
        pieces = list(cut_bucket(bucket, bucket_bytes))
        if len(pieces) <= 1:
            places = enumerate(bucket.offsets, bucket.first)
            yield Frame(bucket.nbytes, tuple(Span(index, 0, offset, sizes[index]) for index, offset in places))
            continue
        size = sizes[bucket.first]
        for begin, end in pieces:
            yield Frame(end - begin, (Span(bucket.first, begin, 0, max(0, min(end, size) - begin)),))


def largest_frame(sizes: Sequence[int], bucket_bytes: int) -> tuple[int, int]:
    """How many frames there are, and the bytes of the largest."""
    count = largest = 0
    for bucket in cut(sizes, bucket_bytes):
        for begin, end in cut_bucket(bucket, bucket_bytes):
            count, largest = count + 1, max(largest, end - begin)
    return count, largest
