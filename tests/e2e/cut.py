"""A TCP proxy before a real server that harms single calls on the wire: drops, delays, truncates or resets them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CHUNK = 1 << 16
LINGER_NOT = b"\x01\0\0\0\0\0\0\0"


@dataclass(frozen=True)
class Harm:
    """``drop`` swallows the answer, ``reset`` answers with a reset, ``truncate`` ends the answer after ``keep`` bytes,
    ``delay`` holds everything back for ``seconds``; ``reaches`` says whether the server gets the request."""

    kind: str
    reaches: bool = True
    keep: int = 60
    seconds: float = 0.0


Choose = Callable[[str, str], Harm | None]
"""The harm for a method and a path; None lets the call through."""


@dataclass
class Cut:
    """One connection for each call, as our clients make them; ``seen`` are the calls as ``METHOD /path``."""

    host: str
    port: int
    choose: Choose
    seen: list[str] = field(default_factory=list)

    def __enter__(self) -> Cut:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = client.recv(CHUNK)
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ")[0].split(b"?")[0].decode()
        self.seen.append(f"{method.decode()} {path}")
        harm = self.choose(method.decode(), path)
        if harm is not None and not harm.reaches:
            self._refuse(client, harm)
            return
        with suppress(OSError), socket.create_connection((self.host, self.port)) as server:
            threading.Thread(target=_pump, args=(client, server, head), daemon=True).start()
            self._answer(client, server, harm)

    def _refuse(self, client: socket.socket, harm: Harm) -> None:
        if harm.kind == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        else:
            _until_gone(client)
        client.close()

    def _answer(self, client: socket.socket, server: socket.socket, harm: Harm | None) -> None:
        left = harm.keep if harm is not None and harm.kind == "truncate" else None
        while data := server.recv(CHUNK):
            if harm is not None and harm.kind == "drop":
                continue
            if harm is not None and harm.kind == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
                break
            if harm is not None and harm.kind == "delay":
                time.sleep(harm.seconds)
            client.sendall(data if left is None else data[:left])
            left = None if left is None else max(0, left - len(data))
            if left == 0:
                break
        if harm is not None and harm.kind == "drop":
            _until_gone(client)
        client.close()


def _pump(client: socket.socket, server: socket.socket, head: bytes) -> None:
    """The rest of the request on its way to the server."""
    with suppress(OSError):
        server.sendall(head)
        while data := client.recv(CHUNK):
            server.sendall(data)


def _until_gone(client: socket.socket) -> None:
    """Say nothing until the caller gives up."""
    with suppress(OSError):
        while client.recv(CHUNK):
            pass
