"""A server that answers completions as the test says, over real connections: whole, event by event, late or broken."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from http_server import Call, HttpServer, Raw, Reply

Tokens = Callable[[list[int]], list[int]]


def echo(prompt: list[int]) -> list[int]:
    """The greedy answer of the state called A to a prompt: four tokens that depend on all of it."""
    return [(sum(prompt) + 7 * step) % 100 for step in range(4)]


def event(tokens: list[int], finish: str | None = None) -> dict[str, Any]:
    """One event of a stream, or the choices of a whole answer."""
    names = [f"token_id:{token}" for token in tokens]
    logprobs = {
        "tokens": names,
        "token_logprobs": [-1.0] * len(tokens),
        "top_logprobs": [{name: -1.0, "token_id:200": -3.0} for name in names],
    }
    return {"choices": [{"index": 0, "token_ids": tokens, "logprobs": logprobs, "finish_reason": finish}]}


def usage(count: int) -> dict[str, Any]:
    return {"usage": {"completion_tokens": count, "prompt_tokens_details": {"cached_tokens": 0}}}


def whole(tokens: list[int], finish: str = "length") -> dict[str, Any]:
    return {**event(tokens, finish), **usage(len(tokens))}


@dataclass
class Talker:
    """``tokens`` gives the answer to a prompt; ``before`` runs before each token and may wait or raise."""

    tokens: Tokens = echo
    before: Callable[[int], None] = lambda step: None
    gate: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Talker:
        self.server = HttpServer({"POST /v1/completions": self._answer})
        return self

    def __exit__(self, *exc: Any) -> None:
        self.gate.set()
        self.server.close()

    @property
    def url(self) -> str:
        return self.server.url

    def prompts(self) -> list[list[int]]:
        return [call.body["prompt"] for call in self.server.calls]

    def _answer(self, call: Call) -> Any:
        tokens = self.tokens(call.body["prompt"])
        if call.body["stream"]:
            return Raw(lambda connection: self._stream(connection, tokens))
        for step in range(len(tokens)):
            self.before(step)
        return Reply(200, whole(tokens))

    def _stream(self, connection: socket.socket, tokens: list[int]) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for step, content in enumerate(self._events(tokens)):
            self.before(step)
            connection.sendall(b"data: " + json.dumps(content).encode() + b"\n\n")
        connection.sendall(b"data: [DONE]\n\n")
        connection.shutdown(socket.SHUT_RDWR)

    def _events(self, tokens: list[int]) -> Iterator[dict[str, Any]]:
        for step, token in enumerate(tokens):
            yield event([token], "length" if step == len(tokens) - 1 else None)
        yield {"choices": [], **usage(len(tokens))}

    def reset(self, connection: socket.socket) -> None:
        """Cut a connection as a machine that falls over does."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()


class Memory:
    """A journal that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def append(self, kind: str, **fields: Any) -> None:
        self.lines.append(json.loads(json.dumps({"kind": kind, **fields})))

    def data(self) -> bytes:
        return "".join(json.dumps(line) + "\n" for line in self.lines).encode()

    def answers(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == "answer"]


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.01)
