"""A process that has imported everything once and forks others from there, in place of a fresh start of each.

Importing torch and vLLM costs seconds for each of a table's rows and proves nothing. What is forked runs the very
modules that ``python -m`` would run, with its own files, environment and process; only the imports are shared.
``vst.selftest.warm_client`` stands for it on the other side.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from vst.lifeline import adopt_orphans

PUBLISHER = "vst.transfer.child"
MODULES = ("vst", PUBLISHER, "vst.selftest")
IMPORTED = (
    "vst.app",
    "vst.console",
    "vst.lanes.ladder",
    "vst.lanes.publish",
    "vst.lanes.records",
    "vst.cluster.shape",
    "hydra.core.hydra_config",
    "hydra._internal.hydra",
    "vst.transfer.adapter",
    "vst.transfer.plugin",
    "vst.transfer.gloo",
    "vst.selftest.checkpoint",
    "vst.selftest.serving",
    "vst.provenance.imports",
    "vst.report.files",
    "jinja2",
    "vllm.distributed.weight_transfer.factory",
)
WHOLE_REQUEST = 1 << 20


@dataclass
class Forked:
    """One forked process and the connection of whoever stands for it."""

    pid: int
    connection: socket.socket


def main(address: Path) -> NoReturn:
    """Import, listen at ``address``, fork on request."""
    # Read when torch is loaded: many small rows run at once, each with a thread of its own.
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in IMPORTED:
        __import__(name)
    serve(address, MODULES)


def serve(address: Path, modules: Sequence[str]) -> NoReturn:
    """Listen at ``address`` and fork whichever of ``modules`` is asked for; everything is imported by now."""
    adopt_orphans()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    listener.bind(str(address))
    listener.listen(64)
    Fork(listener, woken, wake, modules).forever()


class Fork:
    """The loop: new requests, signals to pass on, callers that have gone, children that have ended."""

    def __init__(self, listener: socket.socket, woken: int, wake: int, modules: Sequence[str]) -> None:
        self._listener, self._woken, self._wake, self._modules = listener, woken, wake, modules
        self._forked: dict[int, Forked] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(woken, selectors.EVENT_READ)

    def forever(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                else:
                    self._hear(key.data)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        request, files = receive(connection)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            become(request, files, self._modules)
        for file in files:
            os.close(file)
        self._forked[pid] = Forked(pid, connection)
        self._selector.register(connection, selectors.EVENT_READ, self._forked[pid])

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
            kill_all(forked.pid)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._ended(*found)

    def _ended(self, pid: int, status: int) -> None:
        """One of ours, which is told to whoever stands for it, or what another has left behind."""
        if pid in self._forked:
            kill_group(pid)
            self._tell(self._forked.pop(pid), os.waitstatus_to_exitcode(status))

    def _tell(self, forked: Forked, code: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(forked.connection)
        with contextlib.suppress(OSError):
            forked.connection.sendall(b"%d\n" % code)
        forked.connection.close()


def kill_all(pid: int) -> None:
    """Kill a forked process and what it forked; it leads a group of its own from its first moments on."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    kill_group(pid)


def kill_group(pid: int) -> None:
    """Kill what a forked process has left in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request and the three files that come with it."""
    files = array.array("i")
    data = b""
    while not data.endswith(b"\n"):
        part, extra, _, _ = connection.recvmsg(WHOLE_REQUEST, socket.CMSG_LEN(3 * files.itemsize))
        for level, kind, raw in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files.frombytes(raw[: len(raw) - len(raw) % files.itemsize])
        if not part:
            raise ConnectionError("a request ended early")
        data += part
    return dict(json.loads(data)), list(files)


def become(request: dict[str, Any], files: list[int], modules: Sequence[str]) -> NoReturn:
    """Be the process that was asked for, as ``python -m`` would have started it."""
    code = 1
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, max(files) + 64)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        module, arguments = request["words"][0], request["words"][1:]
        if module not in modules:
            raise ValueError(f"{module} is none of {modules}")
        # A publisher ends with its parent, which is this process's parent now.
        sys.argv = [module, *([str(os.getppid())] if module == PUBLISHER else arguments)]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
