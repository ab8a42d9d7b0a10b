from __future__ import annotations

import importlib.abc
import socket
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from vst.errors import VerificationError
from vst.transfer import adapter

META = [adapter.Declared("a", torch.bfloat16, (2, 3)), adapter.Declared("b", torch.float32, ())]


def stream() -> Iterator[tuple[str, Any]]:
    yield from (("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.28.0", "methods"),
        ("0.29.1", "methods"),
        ("0.30.2", "methods"),
        ("0.31.0.post1", "methods"),
        ("0.32.0", "methods"),
        ("0.32.1.dev12+g0123abc.cpu", "methods"),
        ("0.32", "methods"),
        ("0.33.0", "cached"),
        ("0.33.0rc1", "cached"),
        ("0.33rc1", "cached"),
    ],
)
def test_a_supported_version_has_its_dialect(version: str, expected: str) -> None:
    assert adapter.dialect(version) == expected


@pytest.mark.parametrize(
    ("version", "packs"), [("0.28.0", False), ("0.31.9", False), ("0.32.0", True), ("0.33rc1", True)]
)
def test_which_versions_pack_a_tensor_without_dimensions(version: str, packs: bool) -> None:
    assert adapter.packs_scalars(version) is packs


@pytest.mark.parametrize(
    "version",
    ["0.27.1", "0.34.0", "1.0.0", "0.3.2", "0.280.0", "0.320", "", "None", "dev", "0", "0.", "0.x", "1.32.0", "-0.32.0"]
    + ["v0.32.0", "0.032.0", "0.²8.0", "0.٣٢.0", "０.32.0", "0.32.0\n0.27", " 0.32.0", "0..32", "00.32.0"],
)
def test_any_other_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(VerificationError) as caught:
        adapter.dialect(version)
    assert version in str(caught.value) and "expected 0.28 to 0.33" in str(caught.value)


def test_a_source_is_one_of_the_installed_vllm() -> None:
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    source = adapter.make_source(META, stream)
    assert isinstance(source, WeightSource)
    assert adapter.declared(source) == [ParamMeta("a", torch.bfloat16, (2, 3)), ParamMeta("b", torch.float32, ())]
    for _ in range(2):
        assert list(adapter.tensors(source)) == [("a", 1), ("b", 2)]


def test_vllms_own_groups_cover_the_source() -> None:
    assert list(adapter.make_source(META, stream).iter_groups()) == [(["a", "b"], [1, 2])]


class Meta(NamedTuple):
    name: str
    dtype: Any
    shape: tuple[int, ...]


class MethodsBase(ABC):
    """The source of 0.28 to 0.32: ``metadata()`` and ``__iter__`` must be there."""

    @abstractmethod
    def metadata(self) -> list[Any]: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...


class CachedBase(ABC):
    """The source of 0.33: a class whose ``metadata`` is anything but a cached_property cannot be defined."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "metadata" in cls.__dict__ and not isinstance(cls.__dict__["metadata"], cached_property):
            raise TypeError(f"{cls.__name__}.metadata must be a functools.cached_property")

    @abstractmethod
    def iter_full(self) -> Iterator[Any]: ...


@pytest.mark.parametrize(
    ("version", "base"), [("0.28.0", MethodsBase), ("0.32.0", MethodsBase), ("0.33.0", CachedBase)]
)
def test_a_source_can_be_defined_on_the_base_class_of_each_dialect(
    monkeypatch: pytest.MonkeyPatch, version: str, base: type
) -> None:
    package = types.ModuleType("vllm")
    package.__version__ = version  # type: ignore[attr-defined]
    module = types.ModuleType("vllm.distributed.weight_transfer.base")
    module.ParamMeta, module.WeightSource = Meta, base  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source = adapter.make_source(META, stream)
    assert isinstance(source, base)
    assert [tuple(meta) for meta in adapter.declared(source)] == [
        ("a", torch.bfloat16, (2, 3)),
        ("b", torch.float32, ()),
    ]
    for _ in range(2):
        assert list(adapter.tensors(source)) == [("a", 1), ("b", 2)]


def test_the_adapter_can_be_imported_where_neither_torch_nor_vllm_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocked(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] in ("torch", "vllm"):
                raise ImportError(f"{name} is blocked")

    for name in [name for name in sys.modules if name.partition(".")[0] in ("torch", "vllm")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "vst.transfer.adapter")
    monkeypatch.setattr(sys, "meta_path", [Blocked(), *sys.meta_path])
    import vst.transfer.adapter as again

    assert again.dialect("0.32.0") == "methods"


def where(**changes: Any) -> adapter.Rendezvous:
    given = {"backend": "vst_gloo", "master_address": "127.0.0.1", "port": 0, "world_size": 3, "bucket_bytes": 64}
    return adapter.Rendezvous(**{**given, "timeout_s": 5.0, **changes})


def test_nccl_gets_vllms_own_buffers_unless_a_size_is_given() -> None:
    from vllm.distributed.weight_transfer.nccl_engine import DEFAULT_PACKED_BUFFER_SIZE_BYTES

    default = adapter._init_info(where(backend="nccl", bucket_bytes=None))
    assert (default.packed, default.packed_buffer_size_bytes) == (True, DEFAULT_PACKED_BUFFER_SIZE_BYTES)
    assert (default.rank, default.world_size, default.backend) == (0, 3, "nccl")
    assert default.master_port > 0
    given = adapter._init_info(where(backend="nccl", port=4711, bucket_bytes=1 << 20))
    assert (given.master_port, given.packed_buffer_size_bytes) == (4711, 1 << 20)


def test_gloo_without_a_bucket_size_is_refused() -> None:
    with pytest.raises(VerificationError, match="transfer.bucket_bytes"):
        adapter._init_info(where(bucket_bytes=None))


def test_a_free_port_can_be_bound() -> None:
    port = adapter.free_port("127.0.0.1")
    with socket.create_server(("127.0.0.1", port)) as taken:
        assert taken.getsockname()[1] == port


def test_the_plugin_may_register_more_than_once_and_loads_our_engines() -> None:
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    from vst.transfer.gloo import GlooTrainerWeightTransferEngine, GlooWeightTransferEngine
    from vst.transfer.plugin import BACKEND, register

    for _ in range(3):
        register()
    assert WeightTransferEngineFactory._registry[BACKEND]() is GlooWeightTransferEngine
    assert WeightTransferTrainerFactory._registry[BACKEND]() is GlooTrainerWeightTransferEngine


def test_a_second_sender_shares_the_group_and_has_its_own_source() -> None:
    engine = SimpleNamespace(source="model", group=object(), client="client")
    second = adapter.beside(engine, "draft")
    assert (second.source, second.client, engine.source) == ("draft", "client", "model")
    assert second.group is engine.group


def test_a_second_sender_is_refused_where_the_first_remembers_what_it_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "installed_version", lambda: "0.33.0")
    with pytest.raises(VerificationError, match="not proven with vLLM 0.33.0"):
        adapter.beside(SimpleNamespace(source="model"), "draft")
