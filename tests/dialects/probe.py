"""Run by ``check.py`` with one version of vLLM before all others on the path: the real adapter on the real sources.

Prints one JSON object: which steps held, and the first that did not, with its error.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


def steps() -> dict[str, Callable[[], Any]]:
    import torch

    from vst.transfer import adapter
    from vst.transfer.packing import SENT_ALONE, misplaced

    meta = [adapter.Declared("a", torch.bfloat16, (2, 3)), adapter.Declared("b", torch.float32, ())]
    pairs = [("a", torch.ones(2, 3, dtype=torch.bfloat16)), ("b", torch.tensor(2.0))]

    def source() -> None:
        made = adapter.make_source(meta, lambda: iter(pairs))
        expect([tuple(one) if isinstance(one, tuple) else (one.name, one.dtype, one.shape)
                for one in adapter.declared(made)] == [(m.name, m.dtype, m.shape) for m in meta])
        for _ in range(2):
            expect([name for name, _ in adapter.tensors(made)] == ["a", "b"])

    def init_infos() -> None:
        for backend, bucket in (("nccl", None), ("nccl", 1 << 20), ("vst_gloo", 1 << 20)):
            info = adapter._init_info(adapter.Rendezvous(backend, "127.0.0.1", 4711, 2, bucket, 5.0))
            expect((info.rank, info.world_size, info.master_port) == (0, 2, 4711) and info.is_sender)

    def engines() -> None:
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

        from vst.transfer.plugin import BACKEND, register

        register()
        expect(WeightTransferEngineFactory._registry[BACKEND]().__name__ == "GlooWeightTransferEngine")
        expect(WeightTransferTrainerFactory._registry[BACKEND]().__name__ == "GlooTrainerWeightTransferEngine")

    def packing() -> None:
        from vllm.distributed.weight_transfer.packed_tensor import pack_tensors, unpack_tensor

        odd = ("odd", torch.ones(3, dtype=torch.uint8))
        scalars = adapter.packs_scalars(adapter.installed_version())
        for given in (pairs[:1], pairs[1:], pairs, [odd, *pairs[:1]], [("byte", torch.tensor(1, dtype=torch.int8))]):
            described = [(name, "", one.numel() * one.itemsize, one.itemsize, one.dim()) for name, one in given]
            try:
                chunk = pack_tensors(iter(given), lambda item: item[1], 1 << 20)
                unpack_tensor(chunk.packed_tensor, chunk.names, chunk.shapes, chunk.dtypes, chunk.tensor_sizes)
                held = True
            except (RuntimeError, TypeError):
                held = False
            expect(held == (misplaced(described, 1 << 20, scalars) is None))

    def types_of_nccl() -> None:
        from vllm.distributed.device_communicators.pynccl_wrapper import ncclDataTypeEnum

        for name in SENT_ALONE:
            ncclDataTypeEnum.from_torch(getattr(torch, name))

    return {
        "source": source, "init": init_infos, "engines": engines, "packing": packing, "nccl types": types_of_nccl,
    }  # fmt: skip


def expect(held: bool) -> None:
    if not held:
        raise ValueError("did not give what the adapter relies on")


def main() -> None:
    told: dict[str, Any] = {"held": [], "failed": None, "version": None}
    try:
        from vst.transfer import adapter

        told["version"] = adapter.installed_version()
        told["dialect"] = adapter.dialect(told["version"])
        for name, step in steps().items():
            told["failed"] = name
            step()
            told["held"].append(name)
        told["failed"] = None
    except Exception as error:
        traceback.print_exc()
        told["failed"] = told["failed"] or "import"
        told["error"] = f"{type(error).__name__}: {error}"
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
