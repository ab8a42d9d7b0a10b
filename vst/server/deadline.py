"""A deadline for one whole HTTP call: httpx bounds each read, so that a server which drips bytes would be waited for
without end.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Deadline:
    """Cuts the connection of the call that runs inside it when ``seconds`` are over; ``passed`` says that it did.

    ``trace`` is httpx's extension of that name, by which it learns of the call's connection. The call must have one of
    its own.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: dict[str, Any]) -> None:
        if event in CONNECTED:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.passed:
                self._cut()

    def _cut(self) -> None:
        self.passed = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
