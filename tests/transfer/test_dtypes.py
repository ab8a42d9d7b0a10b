from __future__ import annotations

import pytest
import torch
from safetensors import torch as official

from vst.checkpoint.header import DTYPE_BITS
from vst.errors import VerificationError
from vst.transfer.dtypes import TORCH_NAMES, torch_dtype

PACKED = {"F4", "F6_E2M3", "F6_E3M2"}
"""Several elements share bytes: no torch dtype has the shape that the file declares."""


def test_every_dtype_of_the_format_can_be_sent_except_the_packed_ones() -> None:
    assert set(TORCH_NAMES) == set(DTYPE_BITS) - PACKED


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_the_torch_dtype_has_the_size_of_the_format(name: str) -> None:
    assert torch_dtype(name).itemsize * 8 == DTYPE_BITS[name]


@pytest.mark.parametrize("name", official._TYPES)
def test_the_table_agrees_with_safetensors_own(name: str) -> None:
    assert torch_dtype(name) == official._TYPES[name]


@pytest.mark.parametrize("name", [*sorted(PACKED), "F128", "f32", "", "dtype", "__class__"])
def test_a_dtype_that_torch_cannot_hold_is_refused_by_name(name: str) -> None:
    with pytest.raises(
        VerificationError, match=f"dtype {name} cannot be sent: torch {torch.__version__.split('+')[0]}"
    ):
        torch_dtype(name)
