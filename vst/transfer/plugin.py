"""The vLLM general plugin that makes the gloo backend known to vLLM's two factories.

vLLM calls ``register`` in every process of a server (entry point ``vllm.general_plugins``); it must be safe to repeat.
"""

from __future__ import annotations

BACKEND = "vst_gloo"
MODULE = "vst.transfer.gloo"


def register() -> None:
    """Register backend ``vst_gloo`` with vLLM's worker and trainer factories; both load the module only when it is
    used.
    """
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    for factory, name in (
        (WeightTransferEngineFactory, "GlooWeightTransferEngine"),
        (WeightTransferTrainerFactory, "GlooTrainerWeightTransferEngine"),
    ):
        if BACKEND not in factory._registry:
            factory.register_engine(BACKEND, MODULE, name)
