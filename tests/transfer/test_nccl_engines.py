"""Both of vLLM's own NCCL engines in one process: only the communicator and the stream calls are replaced."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from transfer.test_gloo import Tensors, bits, everything, filled
from transfer.workers import Kept
from vst.checkpoint.digests import with_digests
from vst.checkpoint.header import DTYPE_BITS
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.checkpoint.writer import write_safetensors, write_sparse_checkpoint
from vst.errors import VerificationError
from vst.transfer import adapter
from vst.transfer.dtypes import TORCH_NAMES, torch_dtype
from vst.transfer.footprint import nccl_footprint
from vst.transfer.frames import largest_frame
from vst.transfer.outgoing import Memory, Outgoing
from vst.transfer.packing import SENT_ALONE, Described, misplaced, packable
from vst.transfer.parts import mixed
from vst.transfer.plan import JoinPlan, Member, PushPlan

STANDIN = Path(__file__).parents[1] / "e2e" / "nccl_standin" / "sitecustomize.py"
pytestmark = pytest.mark.filterwarnings("ignore:Tensor .* exceeds buffer_size_bytes")
BUCKETS = [1, 64, 1000, 1 << 20, None]


@pytest.fixture(autouse=True)
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in of the real server's test, put in place by hand and taken away again."""
    import sys

    import vllm.distributed.device_communicators.pynccl as pynccl
    import vllm.distributed.weight_transfer.packed_tensor as packed_tensor

    spec = importlib.util.spec_from_file_location("nccl_standin_here", STANDIN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    spec.loader.exec_module(module)
    for owner, names in (
        (torch.cuda, ("Stream", "stream", "current_stream")),
        (torch.accelerator, ("current_device_index", "synchronize")),
        (pynccl, ("PyNcclCommunicator",)),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    module.replace_communicator(pynccl)
    module.replace_streams(packed_tensor)


class Straight:
    """vLLM's client protocol straight into one NCCL worker engine."""

    def __init__(self) -> None:
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

        parallel = SimpleNamespace(data_parallel_index=0, world_size=1, rank=0)
        config = SimpleNamespace(parallel_config=parallel, model_config=None)
        self.model = Kept()
        self.engine = NCCLWeightTransferEngine(None, config, torch.device("cpu"), self.model)
        self.calls: list[str] = []

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.engine.init_transfer_engine(self.engine.parse_init_info(json.loads(json.dumps(init_info))))

    def start_weight_update(self) -> None:
        self.calls.append("start")

    def update_weights(self, update_info: Any) -> None:
        self.engine.receive_weights(self.engine.parse_update_info(json.loads(json.dumps(update_info))))
        self.calls.append("update")

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.calls.append("finish")


def described(tensors: Tensors) -> list[Described]:
    return [
        (name, str(one.dtype).removeprefix("torch."), one.numel() * one.itemsize, one.itemsize, one.dim())
        for name, one in tensors
    ]


def send(
    declared: Tensors, stream: Callable[[], Iterator[tuple[str, Any]]], bucket: int | None, packed: bool = True
) -> Straight:
    meta = [adapter.Declared(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in declared]
    client = Straight()
    where = adapter.Rendezvous("nccl", "127.0.0.1", 0, 2, bucket, 20.0, packed)
    adapter.join(where, client, adapter.make_source(meta, stream)).send_weights()
    return client


def expect_whole(client: Straight, tensors: Tensors) -> None:
    assert client.calls == ["start", "update", "finish"]
    got = client.model.tensors
    assert list(got) == [name for name, _ in tensors]
    for name, tensor in tensors:
        assert (got[name].dtype, got[name].shape, bits(got[name])) == (tensor.dtype, tensor.shape, bits(tensor)), name


def in_place() -> Tensors:
    """Every dtype, empty and scalar tensors, each where it can be looked at when all are packed: widest first."""
    return sorted(everything(), key=lambda item: -item[1].itemsize)


@pytest.mark.parametrize("bucket", BUCKETS)
def test_every_dtype_and_empty_and_scalar_tensors_arrive_packed(bucket: int | None) -> None:
    tensors = in_place()
    assert misplaced(described(tensors), bucket) is None
    expect_whole(send(tensors, lambda: iter(tensors), bucket), tensors)


@pytest.mark.parametrize("bucket", BUCKETS)
def test_odd_bytes_before_wider_dtypes_arrive_whole_tensor_by_tensor(bucket: int | None) -> None:
    tensors = [pair for pair in everything() if str(pair[1].dtype).removeprefix("torch.") in SENT_ALONE]
    assert packable(described(tensors), bucket) is (bucket == 1)
    packed = packable(described(tensors), bucket)
    expect_whole(send(tensors, lambda: iter(tensors), bucket, packed), tensors)


def test_what_is_called_misplaced_is_what_vllm_cannot_unpack() -> None:
    from vllm.distributed.weight_transfer.packed_tensor import pack_tensors, unpack_tensor

    tensors = everything()
    for first in range(0, len(tensors) - 1, 3):
        pair = tensors[first : first + 4]
        chunk = pack_tensors(iter(pair), lambda item: item[1], 1 << 20)
        assert chunk is not None
        given = (chunk.packed_tensor, chunk.names, chunk.shapes, chunk.dtypes, chunk.tensor_sizes)
        if misplaced(described(pair), None) is None:
            assert [bits(tensor) for _, tensor in unpack_tensor(*given)] == [bits(tensor) for _, tensor in pair]
        else:
            with pytest.raises(RuntimeError, match="storage_offset|divisible"):
                unpack_tensor(*given)


def test_a_layout_that_fits_neither_way_is_refused_by_name() -> None:
    with pytest.raises(VerificationError, match="b cannot be packed.*NCCL has no type for b .int16."):
        packable([("a", "uint8", 3, 1, 1), ("b", "int16", 4, 2, 1)], None)
    assert packable([("a", "uint8", 3, 1, 1), ("b", "int16", 4, 2, 1)], 2)


def test_a_scalar_is_sent_by_itself_where_the_engine_cannot_pack_one() -> None:
    scalar = [("a", "float32", 4, 4, 0)]
    assert packable(scalar, None, scalars=True) and not packable(scalar, None, scalars=False)
    assert packable([("a", "float32", 4, 4, 1)], None, scalars=False)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Tensors]:
    """A safetensors file with every dtype of the format that torch has, empty and scalar tensors and odd sizes."""
    directory = tmp_path_factory.mktemp("every")
    tensors: Tensors = []
    layout: dict[str, tuple[str, list[int], bytes]] = {}
    for seed, name in enumerate(sorted(TORCH_NAMES)):
        for shape in ((3,), (), (0, 4), (5, 7)):
            tensor = filled(torch_dtype(name), shape, seed)
            # By name the widest come first.
            tensors.append((f"{9 - tensor.itemsize}.{name}.{len(tensors):03d}", tensor))
            layout[tensors[-1][0]] = (name, list(shape), bits(tensor))
    write_safetensors(directory / "model.safetensors", layout)
    return with_digests(read_manifest(directory), None), sorted(tensors, key=lambda item: item[0])


def test_the_table_of_dtypes_lacks_only_what_torch_lacks() -> None:
    assert set(DTYPE_BITS) - set(TORCH_NAMES) <= {"F4", "F6_E2M3", "F6_E3M2"}


@pytest.mark.parametrize("staging", ["tensor", "pipelined"])
@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_file_of_every_dtype_goes_through_vllms_engines_by_both_ways_of_staging(
    stored: tuple[Manifest, Tensors], bucket: int | None, staging: str
) -> None:
    manifest, tensors = stored
    members = (Member("http://a", 1),)
    where = JoinPlan("l", members, None, "nccl", "127.0.0.1", 0, bucket, "cpu", 9.0, 9.0, staging=staging)
    out = Outgoing(PushPlan("m", None), where, mixed(manifest, None, ()), manifest, Memory(), lambda *_: None)
    expect_whole(send(tensors, out.pairs, bucket), tensors)
    assert out.close().content_digest == manifest.content_digest


def test_a_source_that_leaves_a_tensor_out_is_never_finished() -> None:
    tensors = everything()[:9]
    with ThreadPoolExecutor(1) as pool, pytest.raises((ValueError, RuntimeError)):
        pool.submit(send, tensors, lambda: iter(tensors[:4] + tensors[5:]), 64).result(30)


def test_a_tensor_of_more_elements_than_31_bits_is_declared_and_cut_exactly(tmp_path: Path) -> None:
    """At the level of metadata: the file is sparse, nothing of it is read."""
    elements = (1 << 31) + 5
    write_sparse_checkpoint(tmp_path, 1, 2, elements * 2)
    manifest = read_manifest(tmp_path)
    sizes = [entry.nbytes for entry in manifest.tensors]
    assert min(sizes) > 1 << 32 and os.stat(tmp_path / manifest.shards[0].name).st_blocks * 512 < 1 << 24
    meta = [adapter.Declared(t.name, torch_dtype(t.dtype), t.shape) for t in manifest.tensors]
    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferUpdateInfo

    said = adapter.declared(adapter.make_source(meta, lambda: iter(())))
    info = NCCLWeightTransferUpdateInfo(
        names=[m.name for m in said], dtype_names=["bfloat16"] * 2, shapes=[list(m.shape) for m in said]
    )
    counts = [int(torch.Size(shape).numel()) for shape in json.loads(json.dumps(info.shapes))]
    assert [count * 2 for count in counts] == sizes and min(counts) > 1 << 31
    count, largest = largest_frame(sizes, 1 << 26)
    assert (largest, count) == (1 << 26, sum(-(-(size + -size % 64) // (1 << 26)) for size in sizes))
    assert nccl_footprint(sizes, None, 4, pipelined=False).sender == max(sizes)
