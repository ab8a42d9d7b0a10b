"""A process that has imported vLLM once and forks servers and publishers from there, in a second or two.

Only the imports are shared. Each server is a process of its own that runs vLLM's own entry point, loads its checkpoint
as ever and has an engine and a worker of its own; these are forked as well, which is vLLM's default on other platforms.

    python tests/warm_vllm.py SOCKET                                # in one terminal, until it is ended
    python -m vst … 'server.launch_prefix=[python,-I,-S,vst/selftest/warm_client.py,SOCKET]'
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import NoReturn

from vst.selftest.warm import PUBLISHER, serve
from vst.selftest.warm_start import WarmProcess

SERVER = "vllm.entrypoints.openai.api_server"
ENV = {
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
}  # fmt: skip
"""What vLLM and torch read while they are imported: that of ``server=cpu``."""

IMPORTED = (
    SERVER,
    "vllm.v1.engine.core",
    "vllm.v1.engine.utils",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vst.transfer.gloo",
    "vst.transfer.adapter",
    "vst.transfer.plugin",
    "vllm.distributed.weight_transfer.factory",
)


def warm_vllm(log: Path) -> WarmProcess:
    """The process for the length of a ``with``; its ``prefix`` goes before the command of a server or a publisher."""
    return WarmProcess(log, program=(__file__,))


def main(address: Path) -> NoReturn:
    os.environ.update(ENV)
    from vllm.utils import system_utils

    system_utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    for name in IMPORTED:
        __import__(name)
    from vllm.model_executor.models import registry

    # Another process that imports everything, only to look at the class of a model: here no device is in danger.
    registry._run_in_subprocess = lambda look: look()
    serve(address, (SERVER, PUBLISHER))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
