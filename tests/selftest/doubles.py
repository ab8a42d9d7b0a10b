"""Scripted servers inside the test's process, and the few ways in which tests ask them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from vst.selftest.checkpoint import load
from vst.selftest.double_server import Double
from vst.selftest.fault import Fault, to_json
from vst.selftest.options import read
from vst.selftest.serving import Server


@dataclass
class Asked:
    """A double with its address; ``deaths`` are the reasons for which its engines died."""

    double: Double
    url: str
    deaths: list[str]
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=20)

    def post(self, path: str, body: Any = None, **params: Any) -> httpx.Response:
        return self.http.post(path, json=body, params=params)

    def get(self, path: str) -> Any:
        return self.http.get(path).json()

    def ask(self, prompt: list[int], tokens: int = 8, **more: Any) -> dict[str, Any]:
        answer = self.post("/v1/completions", completion(prompt, tokens, **more))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def tokens(self, prompt: list[int], tokens: int = 8) -> list[int]:
        return list(self.ask(prompt, tokens)["choices"][0]["token_ids"])


def completion(prompt: list[int], tokens: int, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


@contextmanager
def double(model: Path, *faults: Fault, flags: tuple[str, ...] = ()) -> Iterator[Asked]:
    """A double that serves ``model`` with these faults and further flags."""
    words = ["--model", str(model), "--served-model-name", "m", "--port", "0", "--enable-prompt-tokens-details"]
    sizes = ["--weights-mib", "1", "--kv-mib", "1"]
    given = [part for fault in faults for part in ("--fault", json.dumps(to_json(fault)))]
    options = read([*words, *sizes, *flags, *given])
    deaths: list[str] = []
    server = Server((options.host, 0), Double(options, load(options.model), deaths.append))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    asked = Asked(server.double, f"http://127.0.0.1:{server.server_address[1]}", deaths)
    try:
        yield asked
    finally:
        asked.http.close()
        server.shutdown()
        server.server_close()
        thread.join(10)


@dataclass
class Stream:
    """A completion that is read in a thread; ``wait`` until it has some tokens, ``result`` when it has ended."""

    asked: Asked
    body: dict[str, Any]
    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        self._grown = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        url = f"{self.asked.url}/v1/completions"
        try:
            with httpx.stream("POST", url, json={**self.body, "stream": True}, trust_env=False, timeout=30) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        self._take(json.loads(line[6:]))
        except httpx.HTTPError as error:
            self.error = f"{type(error).__name__}: {error}"

    def _take(self, event: dict[str, Any]) -> None:
        with self._grown:
            if "error" in event:
                self.error = event["error"]["message"]
            for choice in event.get("choices", ()):
                self.tokens += choice["token_ids"]
                self.finish = choice["finish_reason"] or self.finish
            self._grown.notify_all()

    def wait(self, count: int) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.tokens) >= count, 20), (self.tokens, self.error)

    def result(self) -> list[int]:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.tokens
