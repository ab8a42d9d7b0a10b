"""A process that has imported vLLM once and forks its servers from there: the matrix needs some hundred cold starts.

Only the imports are shared. Each server is a process of its own that runs vLLM's own entry point, loads its checkpoint
as ever and has an engine and a worker of its own; these are forked as well, which is vLLM's default on other platforms.

    python -m tests.field.warm_servers SOCKET                       # in one terminal, until it is ended
    python -m vst … 'server.launch_prefix=[python,-I,-S,vst/selftest/warm_client.py,SOCKET]'

The client is that of the self-test: what follows ``-m`` in its words is run.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from vst.selftest.warm import Fork, Forked, receive

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
)


class Servers(Fork):
    """Forks servers; one whose caller has gone is killed with its engine and its workers."""

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        request, files = receive(connection)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            become(request, files)
        for file in files:
            os.close(file)
        self._forked[pid] = Forked(pid, connection)
        self._selector.register(connection, 1, self._forked[pid])

    def _hear(self, forked: Forked) -> None:
        try:
            words = forked.connection.recv(256)
        except OSError:
            words = b""
        for number in words.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(forked.pid, int(number))
        if not words:
            self._selector.unregister(forked.connection)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(forked.pid, signal.SIGKILL)


def become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the server that was asked for."""
    code = 1
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, max(files) + 64)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        words = request["words"]
        words = words[words.index("-m") + 1 :] if "-m" in words else words
        if words[0] != SERVER:
            raise ValueError(f"{words[0]} is not {SERVER}")
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = list(words)
        runpy.run_module(SERVER, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(address: Path) -> NoReturn:
    os.environ.update(ENV)
    from vllm.utils import system_utils

    system_utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    for name in IMPORTED:
        __import__(name)
    from vllm.model_executor.models import registry

    # Another process that imports everything, only to look at the class of a model: here no device is in danger.
    registry._run_in_subprocess = lambda look: look()
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(address))
    listener.listen(8)
    Servers(listener, woken, wake).forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
