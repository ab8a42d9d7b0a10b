"""A fast double of the completions endpoint: one thread, one event loop, answers that follow from the prompt alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

Script = Callable[[dict[str, Any], int], "tuple[int, bytes] | bytes | None"]
"""What is done with the n-th request in place of an answer: a status and a body, raw bytes, or None for the answer."""


def text_of(prompt: str) -> str:
    """A made-up answer: the prompt's digest decides the number."""
    value = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:2], "big")
    return f" It is {value % 1000}.\n#### {value % 1000}"


def answer(body: dict[str, Any], text: str) -> dict[str, Any]:
    ids = list(text.encode())
    usage = {"prompt_tokens": len(str(body.get("prompt"))), "completion_tokens": len(ids)}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "token_ids": ids}
    if "messages" in body:
        choice["message"] = {"role": "assistant", "content": text}
        return {"choices": [choice], "usage": usage, "prompt_token_ids": [1, 2, len(str(body["messages"]))]}
    return {"choices": [{**choice, "text": text, "prompt_token_ids": [1, 2, 3]}], "usage": usage}


@dataclass
class Completions:
    """Listens on a free port; ``seen`` are all requests, ``most`` how many were open at once."""

    delay_s: float = 0.0
    script: Script = lambda body, number: None
    change: Callable[[str, str], str] = lambda prompt, text: text
    seen: list[dict[str, Any]] = field(default_factory=list)
    open: int = 0
    most: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def prompts(self) -> list[str]:
        return [str(body.get("prompt") or body.get("messages")) for body in self.seen]

    def __enter__(self) -> Completions:
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            writer.write(await self._answer(reader))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.seen.append(body)
        scripted = self.script(body, len(self.seen))
        if isinstance(scripted, bytes):
            return scripted
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        status, data = scripted or (200, self._text(body))
        fields = f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(data)}"
        return f"HTTP/1.1 {status} X\r\n{fields}\r\n\r\n".encode() + data

    def _text(self, body: dict[str, Any]) -> bytes:
        prompt = body["prompt"] if "prompt" in body else json.dumps(body["messages"])
        if isinstance(prompt, list):
            # As lm-eval sends them: many at once.
            made = [answer(body, self.change(one, text_of(one)))["choices"][0] for one in prompt]
            return json.dumps({"choices": [{**one, "index": at} for at, one in enumerate(made)], "usage": {}}).encode()
        return json.dumps(answer(body, self.change(prompt, text_of(prompt)))).encode()
