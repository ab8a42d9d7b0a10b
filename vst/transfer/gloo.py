"""The gloo backend of vLLM's weight transfer: the protocol of its NCCL backend, carried over TCP between CPUs.

vLLM loads it as a general plugin (``vst.transfer.plugin``); a server uses it with
``--weight-transfer-config '{"backend": "vst_gloo"}'``. Rank 0 sends; the workers follow at
``rank_offset + dp_rank * (TP * PP) + rank``. Buckets are cut as ``vst.transfer.wire`` says. Start and finish (vLLM's
layerwise reload) are inherited from the NCCL engine, so that they are those of the vLLM that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from vllm.distributed.weight_transfer.base import (
    TrainerInitInfo,
    TrainerWeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

from vst.transfer.affinity import like_parent
from vst.transfer.gloo_group import Group, open_store, send, sizes, views
from vst.transfer.pipeline import Filled
from vst.transfer.receiving import arriving
from vst.transfer.route import address_towards
from vst.transfer.sending import expect_frames
from vst.transfer.wire import VERSION, cut

BACKEND = "vst_gloo"


@dataclass(kw_only=True)
class GlooInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """What a worker needs to join: where rank 0 listens, its place in the group, the bucket size, the longest wait.

    ``wire`` is how the sender cuts: a worker that cuts otherwise refuses to join.
    """

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    bucket_bytes: int
    timeout_s: float
    wire: int

    def __post_init__(self) -> None:
        if self.wire != VERSION:
            raise ValueError(f"the publisher speaks wire {self.wire}, this server {VERSION}: install the same vst")


@dataclass(kw_only=True)
class GlooUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Names, torch dtype names and shapes of the tensors of one update, in the order in which they are sent."""

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.dtype_names) == len(self.shapes):
            raise ValueError(
                f"{len(self.names)} names, {len(self.dtype_names)} dtypes, {len(self.shapes)} shapes: must be as many"
            )


@dataclass
class GlooTrainerInitInfo(TrainerInitInfo):  # type: ignore[misc]
    """Rank 0's side: the address by which the workers reach it, the group's size, the bucket size, the longest wait."""

    backend: ClassVar[str] = BACKEND

    master_address: str
    master_port: int
    world_size: int
    bucket_bytes: int
    timeout_s: float


def _without_mtp_check() -> AbstractContextManager[Any]:
    """vLLM checks the completeness of multi-token-prediction weights per call; an update arrives in many calls."""
    if find_spec("vllm.model_executor.model_loader.mtp_validation") is None:
        return nullcontext()
    from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check

    return disable_mtp_completeness_check()  # type: ignore[no-any-return]


class GlooWeightTransferEngine(NCCLWeightTransferEngine):  # type: ignore[misc]
    """The worker's end."""

    init_info_cls = GlooInitInfo
    update_info_cls = GlooUpdateInfo

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._group: Group | None = None
        self._bucket_bytes = 0

    def init_transfer_engine(self, init_info: GlooInitInfo) -> None:
        parallel = self.parallel_config
        rank = init_info.rank_offset + parallel.data_parallel_index * parallel.world_size + parallel.rank
        host, port = init_info.master_address, init_info.master_port
        store = open_store(host, port, init_info.world_size, master=False, timeout_s=init_info.timeout_s)
        address = address_towards(host, port)
        with like_parent():
            self._group = Group(store, rank, init_info.world_size, address, init_info.timeout_s)
        self._bucket_bytes = init_info.bucket_bytes

    def receive_weights(self, update_info: GlooUpdateInfo) -> None:
        if self._group is None:
            raise RuntimeError("no transfer group: call /init_weight_transfer_engine first")
        with _without_mtp_check():
            buckets = cut(sizes(update_info), self._bucket_bytes)
            for bucket, buffer in arriving(self._group, buckets, self._bucket_bytes):
                self.model.load_weights(list(views(buffer, bucket, update_info)))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # The base class synchronises an accelerator, which a CPU worker does not have.
        self.receive_weights(self.parse_update_info(update_info))

    def shutdown(self) -> None:
        self._group = None


class GlooTrainerWeightTransferEngine(TrainerWeightTransferEngine):  # type: ignore[misc]
    """The publisher's end; ``send_weights`` is start, update beside the broadcast, finish."""

    init_info_cls = GlooTrainerInitInfo

    def __init__(self, *, client: Any, source: Any, group: Group, bucket_bytes: int) -> None:
        super().__init__(client=client, source=source, is_sender=True)
        self._group = group
        self._bucket_bytes = bucket_bytes

    @classmethod
    def trainer_init(
        cls, init_info: GlooTrainerInitInfo, *, client: Any, source: Any = None
    ) -> GlooTrainerWeightTransferEngine:
        if source is None or not init_info.is_sender:
            raise ValueError("the gloo backend has one trainer rank, 0, and it needs a WeightSource")
        info = init_info
        store = open_store(info.master_address, info.master_port, info.world_size, True, info.timeout_s)
        worker = GlooInitInfo(
            master_address=info.master_address,
            master_port=store.port,
            rank_offset=1,
            world_size=info.world_size,
            bucket_bytes=info.bucket_bytes,
            timeout_s=info.timeout_s,
            wire=VERSION,
        )
        # The workers answer the call only when the group stands, and the group stands only when they have joined.
        pool = ThreadPoolExecutor(max_workers=2)
        call = pool.submit(client.init_weight_transfer_engine, asdict(worker))
        group = pool.submit(Group, store, 0, info.world_size, info.master_address, info.timeout_s)
        _first_failure(call, group)
        pool.shutdown(wait=False)
        return cls(client=client, source=source, group=group.result(), bucket_bytes=info.bucket_bytes)

    def send_weights(self) -> None:
        from vst.transfer.adapter import declared, tensors

        meta = declared(self.source)
        info = GlooUpdateInfo(
            names=[m.name for m in meta],
            dtype_names=[str(m.dtype).removeprefix("torch.") for m in meta],
            shapes=[list(m.shape) for m in meta],
        )
        frames = getattr(self.source, "frames", None)
        self.client.start_weight_update()
        pool = ThreadPoolExecutor(max_workers=2)
        call = pool.submit(self.client.update_weights, asdict(info))
        if frames is not None:
            sent = pool.submit(self._broadcast_frames, info, frames(self._bucket_bytes))
        else:
            sent = pool.submit(self._broadcast, info, tensors(self.source))
        _first_failure(call, sent)
        pool.shutdown(wait=False)
        self.client.finish_weight_update()

    def _broadcast_frames(self, info: GlooUpdateInfo, frames: Iterator[Filled]) -> None:
        for filled in expect_frames(frames, info, self._bucket_bytes):
            if filled.frame.nbytes:
                self._group.broadcast(filled.data)

    def _broadcast(self, info: GlooUpdateInfo, pairs: Iterator[tuple[str, torch.Tensor]]) -> None:
        """A source that has tensors and no frames: each bucket is put together here, one at a time."""
        for bucket in cut(sizes(info), self._bucket_bytes):
            buffer = torch.empty(bucket.nbytes, dtype=torch.uint8)
            for name, view in views(buffer, bucket, info):
                view.copy_(_expected(pairs, name, view))
            send(self._group, buffer, bucket, self._bucket_bytes)
        for name, _ in pairs:
            raise ValueError(f"the source gave {name} after the last declared tensor")


def _expected(pairs: Iterator[tuple[str, torch.Tensor]], name: str, view: torch.Tensor) -> torch.Tensor:
    got, tensor = next(pairs, (None, None))
    if tensor is None:
        raise ValueError(f"the source ended before {name}, which was declared")
    if got != name or tensor.dtype != view.dtype or tensor.shape != view.shape:
        raise ValueError(f"the source gave {got} {tensor.dtype} {list(tensor.shape)} where {name} was declared")
    return tensor


def _first_failure(*futures: Any) -> None:
    """Wait for all, but raise the first failure at once: the other side may then never return."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()
