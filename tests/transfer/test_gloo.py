from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from transfer.workers import Direct, Worker
from vst.transfer import adapter
from vst.transfer.dtypes import TORCH_NAMES, torch_dtype
from vst.transfer.gloo import GlooTrainerInitInfo, GlooTrainerWeightTransferEngine, GlooUpdateInfo

Tensors = list[tuple[str, torch.Tensor]]


def filled(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A tensor of any dtype and random bytes (booleans are 0 and 1)."""
    generator = torch.Generator().manual_seed(seed)
    limit = 2 if dtype is torch.bool else 256
    raw = torch.randint(0, limit, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def everything() -> Tensors:
    """Every dtype of the format in awkward sizes, each preceded by an odd number of bytes."""
    found: Tensors = []
    for seed, name in enumerate(TORCH_NAMES):
        dtype = torch_dtype(name)
        found.append((f"{name}.odd", filled(torch.uint8, (3,), seed)))
        for shape in ((), (0,), (1,), (3, 0, 2), (5, 7)):
            found.append((f"{name}.{list(shape)}", filled(dtype, shape, seed)))
    found.append(("large", filled(torch.bfloat16, (300, 70), 99)))
    return found


def join(client: Direct, tensors: Tensors, bucket_bytes: int, timeout_s: float = 20.0, stream: Any = None) -> Any:
    meta = [adapter.Declared(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors]
    source = adapter.make_source(meta, stream or (lambda: iter(tensors)))
    info = GlooTrainerInitInfo(
        rank=0,
        master_address="127.0.0.1",
        master_port=0,
        world_size=1 + len(client.workers),
        bucket_bytes=bucket_bytes,
        timeout_s=timeout_s,
    )
    return GlooTrainerWeightTransferEngine.trainer_init(info, client=client, source=source)


def expect_arrived(worker: Worker, tensors: Tensors) -> None:
    assert list(worker.model.tensors) == [name for name, _ in tensors]
    for name, tensor in tensors:
        got = worker.model.tensors[name]
        assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape), name
        assert bits(got) == bits(tensor), name


@pytest.mark.parametrize("bucket_bytes", [1, 64, 1000, 1 << 20])
def test_every_dtype_and_every_awkward_size_arrives_bit_for_bit(bucket_bytes: int) -> None:
    tensors, client = everything(), Direct(Worker())
    engine = join(client, tensors, bucket_bytes)
    engine.send_weights()
    expect_arrived(client.workers[0], tensors)
    assert client.calls == ["init", "start", "update", "finish"]
    assert sum(map(len, client.workers[0].model.batches)) == len(tensors)
    if bucket_bytes == 1:
        assert all(len(batch) == 1 for batch in client.workers[0].model.batches)


def test_one_membership_carries_many_updates_and_earlier_tensors_stay_as_they_were() -> None:
    current: Tensors = [("a", filled(torch.float32, (50,), 1)), ("b", filled(torch.int8, (3,), 2))]
    client = Direct(Worker())
    engine = join(client, current, 64, stream=lambda: iter(list(current)))
    engine.send_weights()
    first = dict(client.workers[0].model.tensors)
    before = {name: bits(tensor) for name, tensor in first.items()}
    current[:] = [("a", filled(torch.float32, (50,), 3)), ("b", filled(torch.int8, (3,), 4))]
    engine.send_weights()
    expect_arrived(client.workers[0], current)
    assert {name: bits(tensor) for name, tensor in first.items()} == before
    assert client.calls == ["init", *["start", "update", "finish"] * 2]


def test_all_workers_of_tensor_and_data_parallel_ranks_receive_the_same() -> None:
    workers = [Worker(rank, 2, replica) for replica in (0, 1) for rank in (0, 1)]
    tensors = everything()[:20]
    join(Direct(*workers), tensors, 128).send_weights()
    for worker in workers:
        expect_arrived(worker, tensors)


def test_a_tensor_that_is_not_contiguous_arrives_in_its_logical_order() -> None:
    tensors = [("t", filled(torch.float32, (4, 6), 5).t()), ("strided", filled(torch.int16, (20,), 6)[::2])]
    client = Direct(Worker())
    join(client, tensors, 64).send_weights()
    expect_arrived(client.workers[0], tensors)


GOOD: Tensors = [(name, filled(torch.bfloat16, (8,), seed)) for seed, name in enumerate("abc")]
STREAMS: dict[str, tuple[Tensors, str]] = {
    "ends early": (GOOD[:2], "ended before c"),
    "goes on": ([*GOOD, GOOD[0]], "a after the last"),
    "re-orders": ([GOOD[1], GOOD[0], GOOD[2]], "gave b"),
    "repeats": ([GOOD[0], GOOD[0], GOOD[2]], "gave a"),
    "re-types": ([GOOD[0], ("b", GOOD[1][1].view(torch.float16)), GOOD[2]], "gave b"),
    "re-shapes": ([GOOD[0], ("b", GOOD[1][1].view(2, 4)), GOOD[2]], "gave b"),
}


@pytest.mark.parametrize("what", STREAMS)
def test_a_source_that_is_not_what_it_declared_is_never_finished(what: str) -> None:
    tensors, message = STREAMS[what]
    client = Direct(Worker())
    engine = join(client, GOOD, 16, timeout_s=6.0, stream=lambda: iter(tensors))
    with pytest.raises(ValueError, match=message):
        engine.send_weights()
    assert client.calls == ["init", "start", "update"]


def test_a_server_that_refuses_the_update_is_never_sent_a_finish() -> None:
    class Refusing(Direct):
        def update_weights(self, update_info: Any) -> None:
            raise RuntimeError("500")

    client = Refusing(Worker())
    with pytest.raises(RuntimeError, match="500"):
        join(client, GOOD, 64, timeout_s=6.0).send_weights()
    assert client.calls == ["init", "start"]


def test_a_server_that_refuses_the_join_is_told_at_once() -> None:
    class Refusing(Direct):
        def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
            raise RuntimeError("no such backend")

    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="no such backend"):
        join(Refusing(Worker()), GOOD, 64, timeout_s=10.0)
    assert time.monotonic() - begun < 5


def test_a_sender_that_stalls_gives_the_receiver_an_error_within_the_timeout() -> None:
    held = threading.Event()

    def stalls() -> Iterator[tuple[str, torch.Tensor]]:
        yield GOOD[0]
        held.wait(20)
        yield from GOOD[1:]

    client = Direct(Worker())
    engine = join(client, GOOD, 16, timeout_s=6.0, stream=stalls)
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(engine.send_weights)
        with pytest.raises(RuntimeError, match="(?i)timed? ?out|closed|reset"):
            sending.result(15)
        assert time.monotonic() - begun < 12
        held.set()
    assert "finish" not in client.calls
    assert list(client.workers[0].model.tensors) == ["a"]


def test_a_worker_that_was_never_initialised_says_what_to_call() -> None:
    with pytest.raises(RuntimeError, match="/init_weight_transfer_engine"):
        Worker().receive({"names": [], "dtype_names": [], "shapes": []})


@pytest.mark.parametrize("change", [{"names": ["a"]}, {"surprise": 1}, {"shapes": None}])
def test_metadata_that_does_not_fit_together_is_refused(change: dict[str, Any]) -> None:
    info = {"names": ["a", "b"], "dtype_names": ["int8", "int8"], "shapes": [[1], [1]], **change}
    with pytest.raises((ValueError, TypeError)):
        Worker().engine.parse_update_info(info)


def test_update_info_names_the_lengths_that_differ() -> None:
    with pytest.raises(ValueError, match="1 names, 2 dtypes, 0 shapes"):
        GlooUpdateInfo(names=["a"], dtype_names=["int8", "int8"], shapes=[])


@pytest.mark.parametrize("rank", [0, 1])
def test_the_sender_is_rank_0_and_needs_a_source(rank: int) -> None:
    info = GlooTrainerInitInfo(
        rank=rank, master_address="127.0.0.1", master_port=0, world_size=2, bucket_bytes=64, timeout_s=1.0
    )
    source = None if rank == 0 else adapter.make_source([], lambda: iter(()))
    with pytest.raises(ValueError, match="one trainer rank, 0"):
        GlooTrainerWeightTransferEngine.trainer_init(info, client=Direct(Worker()), source=source)
