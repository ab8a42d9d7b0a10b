"""Quantised tensors and the scales without which they mean nothing (part of check ``files.config``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from vst.checkpoint.findings import Findings
from vst.checkpoint.manifest import Manifest

FLOAT8 = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}
WEIGHT_SCALES = ("weight_scale", "weight_scale_inv")
PACKED: dict[str, tuple[tuple[str, ...], ...]] = {
    "qweight": (("scales",), ("qzeros",)),
    "weight_packed": (("weight_scale", "weight_scale_inv"),),
}
"""Leaf name of a packed tensor -> the companions that it needs, each as a choice of leaf names."""

SYMMETRIC_WITHOUT_ZEROS = {"marlin", "fp8"}


def check_scales(
    where: str, manifest: Manifest, config: dict[str, Any], allow_missing: Sequence[str], found: Findings
) -> int:
    """Every quantised tensor must have its companions; returns how many quantised tensors there are.

    FP8 weights (compressed-tensors, DeepSeek and ModelOpt names), packed tensors of GPTQ, AWQ and compressed-tensors,
    and the ``_blocks`` of MXFP4. A tensor whose name matches a pattern of ``allow_missing`` (fnmatch) only gives a
    warning.
    """
    names = set(manifest.by_name)
    count = 0
    for entry in manifest.tensors:
        needs = list(_needs(entry.name, entry.dtype, config))
        count += bool(needs)
        for choice in needs:
            if not names.intersection(choice):
                allowed = any(fnmatchcase(entry.name, pattern) for pattern in allow_missing)
                message = f"{where}: {entry.dtype} tensor {entry.name!r} in {entry.shard!r} has no {_short(choice)}"
                found.complain(message, allowed)
    if count == 0 and _quantised(config):
        found.warnings.append(f"{where}: quantization_config is set but no tensor is recognised as quantised")
    return count


def _needs(name: str, dtype: str, config: dict[str, Any]) -> Iterator[list[str]]:
    stem, _, leaf = name.rpartition(".")
    prefix = f"{stem}." if stem else ""
    for choice in PACKED.get(leaf, ()):
        if choice != ("qzeros",) or _has_zeros(config):
            yield [prefix + word for word in choice]
    if leaf.endswith("_blocks"):
        yield [prefix + leaf.removesuffix("_blocks") + "_scales"]
    elif dtype in FLOAT8 and leaf not in PACKED and "scale" not in leaf:
        yield _float8_companions(prefix, leaf)


def _float8_companions(prefix: str, leaf: str) -> list[str]:
    """``x.weight`` -> ``x.weight_scale`` …; a fused ``x.gate_up_proj`` -> ``x.gate_up_proj_scale`` …."""
    choices = [prefix + word for word in WEIGHT_SCALES] if leaf == "weight" else []
    return choices + [prefix + leaf + suffix for suffix in ("_scale", "_scale_inv", "_weight_scale", ".weight_scale")]


def _quantised(config: dict[str, Any]) -> bool:
    text = config.get("text_config")
    nested = isinstance(text, dict) and isinstance(text.get("quantization_config"), dict)
    return nested or isinstance(config.get("quantization_config"), dict)


def _has_zeros(config: dict[str, Any]) -> bool:
    """AWQ and GPTQ store ``qzeros``; a configuration of another method that says nothing about zero points does not."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return True
    without = quantization.get("zero_point") is False or quantization.get("quant_method") in SYMMETRIC_WITHOUT_ZEROS
    return not without


def _short(choice: list[str]) -> str:
    return " or ".join(repr(name) for name in choice[:2])
