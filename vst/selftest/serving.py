"""The double's HTTP server: one thread for each connection, real streams, and the faults of calls."""

from __future__ import annotations

import json
import queue
import select
import socket
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from vst.selftest import answers
from vst.selftest.breaking import Answered, Cut, Numbers
from vst.selftest.double_server import Double
from vst.selftest.engine import Engine
from vst.selftest.generation import BadRequest, End, EngineDead, Generation, Scored, read
from vst.selftest.routes import COMPLETIONS, PATHS, ROUTES, Call

POLL_S = 0.1
BAD, MISSING, NOT_ALLOWED, BROKEN = 400, 404, 405, 500


class Gone(Exception):
    """The caller has closed its connection."""


class Server(ThreadingHTTPServer):
    """Listens for one double."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], double: Double) -> None:
        self.double = double
        super().__init__(address, Handler)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        print(f"{self.command} {self.path} {args[1] if len(args) > 1 else ''}", flush=True)

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_OPTIONS(self) -> None:
        answer = _no_route(urlsplit(self.path).path)
        self._send(answer.status, answer.body)

    def _handle(self) -> None:
        try:
            self._answer(self._call())
        except Answered as answer:
            self._send(answer.status, answer.body)
        except Cut:
            self._reset()
        except BadRequest as error:
            self._send(BAD, {"error": {"message": str(error), "type": "BadRequestError", "code": BAD}})
        except (Gone, BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except Exception as error:  # as vLLM does: whatever broke is a 500
            self._send(BROKEN, {"error": {"message": f"{type(error).__name__}: {error}", "code": BROKEN}})

    def _call(self) -> Call:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw) if raw else None
        except ValueError as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        return Call(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), body)

    def _answer(self, call: Call) -> None:
        double = self.server.double
        numbers = double.breaking.count(call.path)
        if (call.method, call.path) == COMPLETIONS:
            self._complete(call, numbers)
            return
        double.between_requests()
        double.breaking.at(numbers, "before")
        route = ROUTES.get((call.method, call.path))
        if route is None:
            raise _no_route(call.path)
        if double.dead is not None:
            raise Answered(BROKEN if call.path != "/health" else 503, {"error": f"EngineDeadError: {double.dead}"})
        body = route(double, call)
        double.breaking.at(numbers, "after")
        self._send(200, body)

    def _complete(self, call: Call, numbers: Numbers) -> None:
        double = self.server.double
        engine = double.pick(self.headers.get("X-data-parallel-rank"))
        double.between_requests()
        double.breaking.at(numbers, "before", engine.replica.number)
        options, config = double.options, double.checkpoint.config
        limit, vocab = options.max_model_len, double.checkpoint.shape.vocab
        asked = read(call.body, limit, vocab, config.get("eos_token_id"), options.text)
        wanted = call.body.get("model")
        if wanted not in (None, options.name):
            raise Answered(MISSING, {"error": {"message": f"The model `{wanted}` does not exist.", "code": MISSING}})
        generation = Generation(self.headers.get("X-Request-Id") or f"cmpl-{uuid4().hex[:16]}", asked)
        try:
            engine.submit(generation)
            (self._stream if asked.stream else self._whole)(engine, generation, numbers)
        except EngineDead as error:
            raise Answered(BROKEN, {"error": {"message": str(error), "code": BROKEN}}) from error
        except (Gone, OSError):
            engine.abort(generation)
            raise

    def _items(self, generation: Generation) -> Iterator[Scored | End]:
        while True:
            try:
                item = generation.out.get(timeout=POLL_S)
            except queue.Empty:
                if self._left():
                    raise Gone from None
                continue
            yield item
            if isinstance(item, End):
                return

    def _left(self) -> bool:
        ready, _, _ = select.select([self.connection], [], [], 0)
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)

    def _whole(self, engine: Engine, generation: Generation, numbers: Numbers) -> None:
        double, scored = self.server.double, []
        for item in self._items(generation):
            if isinstance(item, Scored):
                scored.append(item)
                continue
            if item.error is not None:
                raise EngineDead(item.error)
            double.breaking.at(numbers, "after", engine.replica.number)
            options = double.options
            self._send(200, answers.whole(generation, options.name, scored, item.reason, self._shows_cached()))

    def _shows_cached(self) -> bool:
        options = self.server.double.options
        return options.cached_tokens and not any(fault.kind == "cache_unseen" for fault in options.faults)

    def _stream(self, engine: Engine, generation: Generation, numbers: Numbers) -> None:
        """Server-sent events, one for each token; a fault after the call strikes after the first of them."""
        double, count = self.server.double, 0
        name = double.options.name
        self._begin_stream()
        for item in self._items(generation):
            if isinstance(item, Scored):
                count += 1
                self._event(json.dumps(answers.chunk(generation, name, [item], None)))
                double.breaking.at(numbers, "after", engine.replica.number)
            elif item.error is not None:
                self._event(json.dumps({"error": {"message": item.error, "code": BROKEN}}))
            else:
                self._event(json.dumps(answers.chunk(generation, name, [], item.reason)))
        if generation.asked.usage_in_stream:
            self._event(json.dumps(answers.last_chunk(generation, name, count, self._shows_cached())))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _event(self, data: str) -> None:
        raw = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
        self.wfile.flush()

    def _send(self, status: int, body: Any) -> None:
        try:
            text = "" if body is None else body if isinstance(body, str) else json.dumps(body, allow_nan=False)
        except ValueError as error:
            # vLLM refuses to write what is no number, in these words.
            status, text = BAD, json.dumps({"error": {"message": str(error), "type": "BadRequestError", "code": BAD}})
        raw = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _reset(self) -> None:
        """Close with a reset: the caller must not take what it has for an answer."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


def _no_route(path: str) -> Answered:
    """What a path answers that has no route, or none for this method."""
    if path in PATHS:
        return Answered(NOT_ALLOWED, {"detail": "Method Not Allowed"})
    return Answered(MISSING, {"detail": "Not Found"})
