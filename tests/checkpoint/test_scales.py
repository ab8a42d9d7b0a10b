from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vst.checkpoint.findings import Findings
from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.checkpoint.scales import check_scales


def problems(config: dict[str, Any], **tensors: str) -> list[str]:
    entries = tuple(TensorEntry(name.replace("__", "."), dtype, (1,), 1, "m", 0) for name, dtype in tensors.items())
    found = Findings()
    check_scales("model", Manifest(Path("x"), entries, (), {}), config, (), found)
    return found.problems


GPTQ = {"quantization_config": {"quant_method": "gptq"}}
AWQ_SYMMETRIC = {"quantization_config": {"quant_method": "awq", "zero_point": False}}


@pytest.mark.parametrize(
    ("config", "tensors", "missing"),
    [
        (GPTQ, {"a__qweight": "I32", "a__scales": "F16", "a__qzeros": "I32"}, []),
        (GPTQ, {"a__qweight": "I32", "a__qzeros": "I32"}, ["a.scales"]),
        (GPTQ, {"a__qweight": "I32"}, ["a.scales", "a.qzeros"]),
        (AWQ_SYMMETRIC, {"a__qweight": "I32", "a__scales": "F16"}, []),
        ({}, {"a__weight_packed": "I32", "a__weight_scale": "F16"}, []),
        ({}, {"a__weight_packed": "I32"}, ["a.weight_scale"]),
        ({}, {"experts__down_proj_blocks": "U8", "experts__down_proj_scales": "U8"}, []),
        ({}, {"experts__down_proj_blocks": "U8"}, ["experts.down_proj_scales"]),
        ({}, {"experts__gate_up_proj": "F8_E4M3", "experts__gate_up_proj_scale": "F32"}, []),
        ({}, {"experts__gate_up_proj": "F8_E5M2"}, ["gate_up_proj_scale"]),
        ({}, {"a__weight": "F8_E4M3", "b__weight_scale": "F32"}, ["a.weight_scale"]),
        ({}, {"a__weight": "BF16"}, []),
        ({}, {"a__weight": "BF16", "a__weight_scale": "F8_E4M3"}, []),
    ],
)
def test_quantised_tensors_need_their_companions(
    config: dict[str, Any], tensors: dict[str, str], missing: list[str]
) -> None:
    found = problems(config, **tensors)
    assert len(found) == len(missing)
    assert all(any(name in message for message in found) for name in missing)


def test_quantised_config_without_quantised_tensors_is_warned_about() -> None:
    found = Findings()
    entries = (TensorEntry("a.weight", "BF16", (1,), 1, "m", 0),)
    check_scales("model", Manifest(Path("x"), entries, (), {}), GPTQ, (), found)
    assert found.warnings and not found.problems
