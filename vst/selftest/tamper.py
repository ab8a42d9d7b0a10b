"""The faults that touch content: what a rank does to a tensor that it was sent, and to the weights that it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from vst.selftest.decoder import SCALE
from vst.selftest.fault import Fault
from vst.selftest.weights import RankWeights


def received(faults: Sequence[Fault], name: str, part: Tensor) -> Tensor | None:
    """What a rank loads instead of ``part``; None when it loads nothing and keeps what it has."""
    for fault in faults:
        if fault.kind == "stale" and fault.of == "tensor" and fault.hits(name):
            return None
        if fault.hits(name):
            part = changed(fault, name, part)
    return part


def changed(fault: Fault, name: str, part: Tensor) -> Tensor:
    """One tensor as a fault of its content leaves it; the same tensor for a fault of another kind."""
    if fault.kind == "scale_lost":
        return torch.ones_like(part) if name.endswith(SCALE) else part
    if fault.kind == "zero":
        return torch.zeros_like(part)
    if fault.kind == "squeeze":
        return part.to(getattr(torch, fault.dtype)).to(part.dtype)
    if fault.kind in ("noise", "foreign_update", "order"):
        return _noisy(part, fault, name)
    if fault.kind == "nan":
        return _with_nan(part, fault, name)
    return part


def _generator(fault: Fault, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(fault.seed + sum(name.encode()) * 1009)


def _noisy(part: Tensor, fault: Fault, name: str) -> Tensor:
    plain = part.to(torch.float32)
    spread = float(plain.abs().mean()) or 1.0
    noise = torch.randn(part.shape, generator=_generator(fault, name)) * spread * fault.amount
    return (plain + noise).to(part.dtype)


def _with_nan(part: Tensor, fault: Fault, name: str) -> Tensor:
    """``amount`` of the elements, and at least one, become NaN."""
    flat = part.to(torch.float32).reshape(-1).clone()
    count = max(1, round(fault.amount * flat.numel()))
    flat[torch.randperm(flat.numel(), generator=_generator(fault, name))[:count]] = float("nan")
    return flat.reshape(part.shape).to(part.dtype)


def swap(fault: Fault, weights: RankWeights) -> None:
    """Exchange each tensor that ``match`` finds with the one whose name has ``with_match`` in its place."""
    for name in weights.names:
        partner = re.sub(fault.match or "", fault.with_match or "", name)
        if fault.match and re.search(fault.match, name) and partner != name and partner in weights.names:
            kept = weights.get(name).clone()
            weights.load(name, weights.get(partner).clone())
            weights.load(partner, kept)


def disturb(fault: Fault, weights: RankWeights) -> None:
    """Change the weights that a rank holds, outside of any update."""
    for name in weights.names:
        if fault.hits(name):
            weights.load(name, changed(fault, name, weights.get(name).clone()))
