"""A small HTTP server whose routes are scripted by the test; real sockets, one thread for each connection."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Call:
    """One request as it arrived."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """An answer with a status and headers of its own; ``body`` is sent as it is when it is bytes, else as JSON."""

    status: int = 200
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Raw:
    """Whatever ``write`` does with the connection, in place of an HTTP answer."""

    write: Callable[[socket.socket], None]


Route = Callable[[Call], Any]


class HttpServer:
    """Answers ``METHOD /path`` (or ``/path`` for any method) by ``routes``, everything else with 404; logs all calls.

    A route is a value (JSON, ``Reply``, ``Raw``) or a function of the call that returns one.
    """

    def __init__(self, routes: dict[str, Any] | None = None) -> None:
        self.routes: dict[str, Any] = dict(routes or {})
        self.calls: list[Call] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are kept in ``calls``."""

            def _answer(self) -> None:
                outer._answer(self)

            do_GET = do_POST = do_OPTIONS = do_PUT = _answer

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hangs up is part of many tests."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paths(self, method: str = "POST") -> list[str]:
        """The paths that were called by ``method``, in order."""
        return [call.path for call in self.calls if call.method == method]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        call = _read(handler)
        self.calls.append(call)
        route = self.routes.get(
            f"{call.method} {call.path}", self.routes.get(call.path, Reply(404, {"detail": "none"}))
        )
        reply = route(call) if callable(route) else route
        if isinstance(reply, Raw):
            handler.close_connection = True
            reply.write(handler.connection)
            return
        _send(handler, reply if isinstance(reply, Reply) else Reply(200, reply))


def _read(handler: BaseHTTPRequestHandler) -> Call:
    parts = urlsplit(handler.path)
    raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    headers = {key.lower(): value for key, value in handler.headers.items()}
    body = json.loads(raw) if raw else None
    return Call(handler.command or "", parts.path, dict(parse_qsl(parts.query)), headers, body)


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    handler.send_response(reply.status)
    for key, value in reply.headers:
        handler.send_header(key, value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def sequence(*answers: Any) -> Route:
    """A route that gives one answer after the other and stays with the last."""
    left = list(answers)

    def route(call: Call) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(call) if callable(answer) else answer

    return route
