"""An HTTP proxy before a real server that can be told to lie: to swallow, delay, change or redirect single calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


@dataclass
class Call:
    """One request on its way: where it goes may be changed by a rule."""

    method: str
    path: str
    body: Any
    backend: str


Before = Callable[[Call], "tuple[int, Any] | None"]
After = Callable[[Call, int, Any], "tuple[int, Any]"]


@dataclass
class Proxy:
    """Forwards to ``backend``; ``before`` may answer by itself, ``after`` may change it; ``seen`` are the paths."""

    backend: str
    before: Before = lambda call: None
    after: After = lambda call, status, body: (status, body)
    seen: list[str] = field(default_factory=list)

    def __enter__(self) -> Proxy:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                """Quiet."""

            def _handle(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                proxy._serve(self, raw)

            do_GET = do_POST = do_OPTIONS = _handle

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._client = httpx.Client(timeout=300, trust_env=False)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _serve(self, handler: BaseHTTPRequestHandler, raw: bytes) -> None:
        call = Call(handler.command, handler.path.partition("?")[0], json.loads(raw) if raw else None, self.backend)
        self.seen.append(call.path)
        answer = self.before(call)
        if answer is None:
            headers = {"content-type": "application/json"} if raw else {}
            response = self._client.request(handler.command, call.backend + handler.path, content=raw, headers=headers)
            try:
                body = response.json()
            except ValueError:
                body = response.text
            answer = self.after(call, response.status_code, body)
        status, body = answer
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        try:
            handler.send_response(status)
            handler.send_header("content-type", "text/plain" if isinstance(body, str) else "application/json")
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except BrokenPipeError:
            handler.close_connection = True
