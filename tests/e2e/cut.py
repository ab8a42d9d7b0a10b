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
        with suppress(OSError), client:
            request = _request(client)
            method, _, rest = request.partition(b" ")
            path = rest.split(b" ")[0].split(b"?")[0].decode()
            self.seen.append(f"{method.decode()} {path}")
            harm = self.choose(method.decode(), path)
            if harm is not None and not harm.reaches:
                _withhold(client, harm)
                return
            with socket.create_connection((self.host, self.port)) as server:
                server.sendall(request)
                _answer(client, server, harm)


def _request(client: socket.socket) -> bytes:
    """One request, whole: nothing else reads from the connection, so that closing it closes it."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(client)
    head, _, body = data.partition(b"\r\n\r\n")
    found = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    wanted = int(found[0].partition(b":")[2]) if found else 0
    while len(body) < wanted:
        body += _some(client)
    return head + b"\r\n\r\n" + body


def _some(client: socket.socket) -> bytes:
    data = client.recv(CHUNK)
    if not data:
        raise OSError("the caller is gone")
    return data


def _answer(client: socket.socket, server: socket.socket, harm: Harm | None) -> None:
    left = harm.keep if harm is not None and harm.kind == "truncate" else None
    while data := server.recv(CHUNK):
        if harm is not None and harm.kind in ("drop", "reset"):
            continue
        if harm is not None and harm.kind == "delay":
            time.sleep(harm.seconds)
        client.sendall(data if left is None else data[:left])
        left = None if left is None else max(0, left - len(data))
        if left == 0:
            return
    if harm is not None:
        _withhold(client, harm)


def _withhold(client: socket.socket, harm: Harm) -> None:
    """No answer: a reset, or silence until the caller gives up."""
    if harm.kind == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    elif harm.kind == "drop":
        while client.recv(CHUNK):
            pass
