"""The values of the zoo's tensors: drawn from SHAKE-256 of seed and tensor name, so large that every family matters.

Nothing keeps a default: norms are spread around the one or the zero that their model takes for neutral, biases and
scales are perturbed, a router prefers no expert.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from vst.checkpoint.families import family
from vst.errors import VerificationError

MATRIX_STD = 0.15
SPREAD = 0.3
"""Half the width of what norms, biases and scales are perturbed by."""

BITS = {"BF16": 16, "F16": 16, "F32": 32, "I32": 32, "I8": 8}


def draw(seed: str, name: str, dtype: str, shape: Sequence[int], neutral: float) -> bytes:
    """The bytes of one tensor as safetensors stores them.

    ``neutral`` is the constant that a norm or a bias is initialised with. VerificationError for a dtype that the zoo
    does not write.
    """
    unit = _unit(f"{seed}/{name}", math.prod(shape))
    return _stored(_values(name, len(shape), neutral)(unit), dtype)


def _values(name: str, dimensions: int, neutral: float) -> Callable[[Any], Any]:
    leaf = name.rpartition(".")[2]
    if leaf in ("A_log", "dt_bias"):
        # The decay and the time step of a state space: values that neither forget at once nor never.
        low, high = (0.0, 1.5) if leaf == "A_log" else (-3.0, -1.0)
        return lambda unit: low + (unit + 1) / 2 * (high - low)
    if leaf.endswith("correction_bias"):
        # Added to probabilities: a larger one would decide by itself which experts are taken.
        return lambda unit: unit * 0.05
    if leaf in ("weight_scale", "scales"):
        return lambda unit: 0.002 * (1 + SPREAD * unit) if leaf == "weight_scale" else 0.03 * (1 + SPREAD * unit)
    if dimensions == 1 or family(name) in ("norm", "bias") or leaf == "D":
        return lambda unit: neutral + SPREAD * unit
    return lambda unit: unit * (MATRIX_STD * math.sqrt(3))


def _unit(key: str, count: int) -> Any:
    """``count`` numbers from -1 to 1 in single precision."""
    import numpy as np

    raw = hashlib.shake_256(key.encode()).digest(2 * count)
    return (np.frombuffer(raw, "<u2").astype(np.float32) - np.float32(32767.5)) / np.float32(32768)


def _stored(values: Any, dtype: str) -> bytes:
    import numpy as np

    if dtype == "F32":
        return bytes(np.asarray(values, "<f4").tobytes())
    if dtype == "F16":
        return bytes(np.asarray(values, "<f2").tobytes())
    if dtype != "BF16":
        raise VerificationError(f"the zoo draws no numbers of {dtype}")
    bits = np.asarray(values, "<f4").view("<u4")
    return bytes(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes())


def draw_integers(seed: str, name: str, dtype: str, shape: Sequence[int]) -> bytes:
    """Whole numbers over the whole range of their bits: eight-bit weights, or eight four-bit ones in a word."""
    raw = hashlib.shake_256(f"{seed}/{name}".encode()).digest(math.prod(shape) * BITS[dtype] // 8)
    # -128 has no opposite: a kernel that is symmetric would not take it.
    return raw.replace(b"\x80", b"\x81") if dtype == "I8" else raw
