"""The one adapter to vLLM's trainer side: what each supported version wants of a weight source and of the sender.

Dialect ``methods`` (0.28 … 0.32): ``metadata()`` is a method and the source itself is iterated. Dialect ``cached``
(0.33): ``metadata`` is a ``functools.cached_property`` and the tensors come from ``iter_full()``. Both build the sender
by ``WeightTransferTrainerFactory.trainer_init(init_info, client=, source=)`` and send by ``send_weights()``. Any other
version is refused by name. Read from the wheels of vLLM 0.28, 0.30, 0.32 and 0.33.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vst.errors import VerificationError

DIALECTS = {28: "methods", 29: "methods", 30: "methods", 31: "methods", 32: "methods", 33: "cached"}
SUPPORTED = "0.28 to 0.33"

Pairs = Iterator[tuple[str, Any]]


@dataclass(frozen=True)
class Declared:
    """One tensor of a source: its name, torch dtype and shape."""

    name: str
    dtype: Any
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Rendezvous:
    """Where and how the group meets: rank 0's address and port (0: any that is free), size, bucket, longest wait.

    ``packed``: whether vLLM's NCCL engine puts tensors together, as its own default is.
    """

    backend: str
    master_address: str
    port: int
    world_size: int
    bucket_bytes: int | None
    timeout_s: float
    packed: bool = True


def dialect(version: str) -> str:
    """The dialect of a vLLM version such as ``0.32.0`` or ``0.33.0rc1``; VerificationError for an unknown one."""
    match = re.fullmatch(r"0\.([1-9][0-9]?)(?:[.+a-z].*)?", version)
    found = DIALECTS.get(int(match.group(1))) if match else None
    if found is None:
        raise VerificationError(f"vLLM {version} is not supported: expected {SUPPORTED}")
    return found


def packs_scalars(version: str) -> bool:
    """Whether the NCCL engine of this vLLM packs tensors without dimensions; those of 0.28 to 0.31 are not proven to.

    VerificationError for a version that is not supported.
    """
    dialect(version)
    return int(version.split(".")[1].partition("rc")[0]) >= 32


def installed_version() -> str:
    """The version of the vLLM that this process would import, read from the package and not from its metadata."""
    import vllm

    return str(vllm.__version__)


def make_source(
    metadata: list[Declared], stream: Callable[[], Pairs], frames: Callable[[int], Iterator[Any]] | None = None
) -> Any:
    """A ``WeightSource`` of the installed vLLM over fixed ``metadata``; each pass takes a fresh ``stream()``.

    ``frames`` gives the same tensors cut for buckets of so many bytes, which only our own engine asks for.
    """
    source = _source_class(metadata, stream)()
    source.frames = frames
    return source


def _source_class(metadata: list[Declared], stream: Callable[[], Pairs]) -> Any:
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    declared_meta = [ParamMeta(m.name, m.dtype, m.shape) for m in metadata]

    if dialect(installed_version()) == "methods":

        class MethodSource(WeightSource):  # type: ignore[misc]
            def metadata(self) -> list[Any]:
                return declared_meta

            def __iter__(self) -> Pairs:
                return stream()

        return MethodSource

    class CachedSource(WeightSource):  # type: ignore[misc]
        @cached_property
        def metadata(self) -> list[Any]:
            return declared_meta

        def iter_full(self) -> Pairs:
            return stream()

    return CachedSource


def declared(source: Any) -> list[Any]:
    """The metadata of a source of either dialect."""
    metadata = source.metadata
    return metadata() if callable(metadata) else metadata  # type: ignore[no-any-return]


def tensors(source: Any) -> Pairs:
    """One fresh pass over a source of either dialect."""
    return source.iter_full() if hasattr(source, "iter_full") else iter(source)


def join(where: Rendezvous, client: Any, source: Any) -> Any:
    """Meet the server's workers and return vLLM's trainer engine, ready for ``send_weights()``."""
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    from vst.transfer.plugin import register

    register()
    return WeightTransferTrainerFactory.trainer_init(_init_info(where), client=client, source=source)


def beside(engine: Any, source: Any) -> Any:
    """A second sender over the group of ``engine``, for tensors of another layout.

    VerificationError where the sender keeps a memory of what it declared, which a second one would not share.
    """
    if dialect(installed_version()) != "methods":
        raise VerificationError(
            f"a draft's transaction over a group that is shared was not proven with vLLM {installed_version()}: "
            "expected 0.28 to 0.32; push the draft with a vLLM of these, or leave the draft undeclared"
        )
    second = copy(engine)
    second.source = source
    return second


def _init_info(where: Rendezvous) -> Any:
    if where.backend == "nccl":
        return _nccl_info(where)
    from vst.transfer.gloo import GlooTrainerInitInfo

    if where.bucket_bytes is None:
        raise VerificationError("transfer.bucket_bytes is not set; the gloo backend needs it")
    return GlooTrainerInitInfo(
        rank=0,
        master_address=where.master_address,
        master_port=where.port,
        world_size=where.world_size,
        bucket_bytes=where.bucket_bytes,
        timeout_s=where.timeout_s,
    )


def _nccl_info(where: Rendezvous) -> Any:
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    # Without a size of ours vLLM's own default holds, on both ends.
    size = {} if where.bucket_bytes is None else {"packed_buffer_size_bytes": where.bucket_bytes}
    return NCCLTrainerInitInfo(
        rank=0,
        master_address=where.master_address,
        master_port=where.port or free_port(where.master_address),
        world_size=where.world_size,
        packed=where.packed,
        **size,
    )


def free_port(address: str) -> int:
    import socket

    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
