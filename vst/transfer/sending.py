"""The sender's own check of its frames: they must be those that the workers were told to expect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import torch

from vst.transfer.frames import plan_frames
from vst.transfer.gloo_group import UpdateInfo, sizes
from vst.transfer.pipeline import Filled


def expect_frames(frames: Iterator[Filled], info: UpdateInfo, bucket_bytes: int) -> Iterator[Filled]:
    """Each frame on, after its cut and its tensors were compared with what was declared; ValueError at the first other.

    The workers cut by ``info`` alone, so a frame of another cut would be taken for other tensors.
    """
    declared = list(zip(info.names, info.dtype_names, map(tuple, info.shapes), strict=True))
    for filled, expected in zip_longest(frames, plan_frames(sizes(info), bucket_bytes)):
        if expected is None:
            raise ValueError(f"the source gave {filled.digests[:1]} after the last declared tensor")
        if filled is None:
            raise ValueError(f"the source ended before {declared[expected.spans[0].index][0]}, which was declared")
        if filled.frame != expected or filled.data.numel() != expected.nbytes or filled.data.dtype != torch.uint8:
            name = declared[expected.spans[0].index][0]
            raise ValueError(f"the source cut its tensors otherwise at {name}: {filled.frame}, expected {expected}")
        yield filled
