from __future__ import annotations

from pathlib import Path

import pytest
import vllm

from dialects.contract import COMMON, ROUTES, SOURCES, WEIGHTS, Method, drifts, routes
from vst.transfer.adapter import dialect

PACKAGES = Path(vllm.__file__).parents[1]


def read(file: str) -> str:
    return (PACKAGES / file).read_text()


def test_the_installed_vllm_keeps_the_contract() -> None:
    assert drifts(read, dialect(vllm.__version__)) == []
    found = routes(path.read_text() for path in (PACKAGES / "vllm/entrypoints").rglob("*.py"))
    assert set(ROUTES) <= found


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("base.py", "def metadata(", "def metas(", "WeightSource.metadata is gone"),
        ("base.py", "class ParamMeta", "class Meta", "class ParamMeta is gone"),
        ("nccl_engine.py", "    packed: bool = True", "    packing: bool = True", "NCCLTrainerInitInfo.packed is gone"),
        ("factory.py", "def trainer_init", "def trainer_start", "WeightTransferTrainerFactory.trainer_init is gone"),
        ("factory.py", "class_name: ", "cls_name: ", "register_engine takes no class_name any more"),
        ("nccl_engine.py", "DEFAULT_PACKED_BUFFER_SIZE_BYTES", "SIZE", "DEFAULT_PACKED_BUFFER_SIZE_BYTES is gone"),
        ("packed_tensor.py", "def pack_tensors", "def pack", "pack_tensors is gone"),
    ],
)
def test_what_moved_is_named(file: str, old: str, new: str, message: str) -> None:
    assert old in read(WEIGHTS + file)

    def moved(asked: str) -> str:
        return read(asked).replace(old, new) if asked == WEIGHTS + file else read(asked)

    lines = drifts(moved, "methods")
    assert any(message in line and file in line for line in lines), lines


def test_a_module_that_is_gone_is_named_for_everything_in_it() -> None:
    def without(asked: str) -> str:
        if asked.endswith("factory.py"):
            raise FileNotFoundError(asked)
        return read(asked)

    assert set(drifts(without, "methods")) == {f"{WEIGHTS}factory.py is gone"}


def test_the_newer_dialect_is_not_taken_for_the_older_one() -> None:
    assert {line.partition(": ")[2] for line in drifts(read, "cached")} >= {"WeightSource.iter_full is gone"}
    assert all(isinstance(need, Method) for needs in SOURCES.values() for need in needs) and len(COMMON) > 20
