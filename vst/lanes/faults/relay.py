"""A relay between the publisher and a server: it passes every call on, but for what its rule does to one of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from vst.lanes.faults.shot import Shot
from vst.lanes.sending import longest_broadcast, rejoin
from vst.lanes.session import Session

UPDATE = "/update_weights"
FORWARDED = ("content-type", "authorization")


@dataclass(frozen=True)
class Rule:
    """``change`` gives the body that goes on; ``cut_after`` the seconds after which a call's connection is cut."""

    change: Callable[[str, bytes], bytes] = lambda path, body: body
    cut_after: Callable[[str], float | None] = lambda path: None


@contextmanager
def detour(session: Session, rule: Rule) -> Iterator[Shot]:
    """Inside, the publisher calls the last server through a relay with this rule; it joins the group anew for that."""
    shot, base_url = Shot(), session.servers[-1].control.base_url
    with Relay(base_url, rule, shot, longest_broadcast(session)) as relay:
        rejoin(session)
        session.detours[base_url] = relay.url
        try:
            yield shot
        finally:
            session.detours.clear()
            rejoin(session)


class Relay:
    """Listens on this machine's loopback from entry to exit and forwards to ``backend``."""

    def __init__(self, backend: str, rule: Rule, shot: Shot, timeout_s: float) -> None:
        self._rule, self._shot = rule, shot
        self._http = httpx.Client(base_url=backend, trust_env=False, timeout=timeout_s)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Relay:
        threading.Thread(target=self._server.serve_forever, name="vst-relay", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                """The publisher's side of each call is in the events."""

            def do_POST(self) -> None:
                relay.serve(self, self.rfile.read(int(self.headers.get("content-length") or 0)))

        return Handler

    def serve(self, call: BaseHTTPRequestHandler, body: bytes) -> None:
        """Pass one call on, changed or cut as the rule says."""
        changed = self._rule.change(call.path, body)
        if changed != body:
            self._shot.now()
        if (after := self._rule.cut_after(call.path)) is not None:
            threading.Thread(target=self._cut, args=(call.connection, after), daemon=True).start()
        status, kind, answer = self._forward(call, changed)
        with suppress(OSError):  # the publisher's connection was cut, or the publisher is gone
            call.send_response(status)
            call.send_header("content-type", kind)
            call.send_header("content-length", str(len(answer)))
            call.end_headers()
            call.wfile.write(answer)

    def _forward(self, call: BaseHTTPRequestHandler, body: bytes) -> tuple[int, str, bytes]:
        headers = {name: value for name in FORWARDED if (value := call.headers.get(name))}
        try:
            answer = self._http.post(call.path, content=body, headers=headers)
        except httpx.HTTPError as error:
            return 502, "text/plain", f"the relay got no answer: {type(error).__name__}: {error}".encode()
        return answer.status_code, answer.headers.get("content-type", "text/plain"), answer.content

    def _cut(self, connection: socket.socket, after: float) -> None:
        time.sleep(after)
        self._shot.now()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
