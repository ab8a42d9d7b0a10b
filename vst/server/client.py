"""The control plane: HTTP calls to one vLLM server, each with a deadline, each told to whoever keeps the events.

A client never judges. It knows only whether a call was answered with success: anything else than a 2xx is an
``HttpFailure``, and so is a 2xx whose body says that it failed; no answer at all is ``Unreachable``.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import httpx

from vst.errors import ConfigError, TransportError
from vst.server.address import base_url_problem
from vst.server.deadline import Deadline

BODY_EXCERPT = 500
MAX_BODY_BYTES = 256 << 20
RANK_HEADER = "X-data-parallel-rank"


class Unreachable(TransportError):
    """The server did not answer: refused, cut, or past the deadline."""


class HttpFailure(TransportError):
    """The server answered, and the answer is a failure; ``status`` is the HTTP status, ``body`` the text."""

    def __init__(self, message: str, status: int, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status, self.body)


@dataclass(frozen=True)
class Exchange:
    """One call as it is written to ``events.jsonl``; times in seconds, ``status`` None when there was no answer."""

    method: str
    path: str
    params: dict[str, Any]
    status: int | None
    seconds: float
    answer: str
    error: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


FAILED = frozenset({"error", "errored", "fail", "failed", "failure"})
NO = (False, 0, "false", "False")


def body_failure(body: Any) -> str | None:
    """What a body says against its own 2xx; None where it says nothing.

    ``success`` or ``ok`` that is false, an ``error`` or ``errors`` that is not empty, a ``status`` of failure, and the
    ``object: error`` of OpenAI's and vLLM's own error bodies.
    """
    if not isinstance(body, Mapping):
        return None
    for name in ("success", "ok"):
        if name in body and body[name] in NO:
            return f"{name} is {json.dumps(body[name])}"
    for name in ("error", "errors"):
        if body.get(name):
            return f"{name}: {json.dumps(body[name])[:BODY_EXCERPT]}"
    for name in ("status", "object"):
        value = body.get(name)
        if isinstance(value, str) and value.lower() in FAILED:
            return f"{name} is {value!r}: {json.dumps(body)[:BODY_EXCERPT]}"
    return None


class ControlPlane:
    """Calls to the server at ``base_url``; ``api_key`` travels in the Authorization header and nowhere else.

    ``rank`` addresses one data-parallel rank: without it the server chooses who answers.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        on_exchange: Callable[[Exchange], None] | None = None,
        rank: int | None = None,
    ) -> None:
        problem = base_url_problem(base_url)
        if problem:
            raise ConfigError(f"server.base_url: {problem}")
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise ConfigError("the key named by server.api_key_env has characters that no header can carry")
        self.base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self.rank = rank
        self._tell = on_exchange
        self._key = api_key
        # One connection for each call: one that was kept can be closed by the server just when it is used again.
        headers = {
            "Connection": "close",
            **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            **({RANK_HEADER: str(rank)} if rank is not None else {}),
        }
        # The server is addressed as given: a proxy of the environment would judge another machine.
        self._http = httpx.Client(
            base_url=self.base_url, headers=headers, trust_env=False, timeout=timeout_s, verify=_tls()
        )

    def close(self) -> None:
        self._http.close()

    def to_rank(self, rank: int) -> ControlPlane:
        """The same server with every request addressed to one of its data-parallel ranks."""
        return ControlPlane(self.base_url, self._key, self.timeout_s, self._tell, rank)

    def get(self, path: str, params: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> Any:
        """The JSON body of a GET, or its text when it is not JSON."""
        return self._call("GET", path, params, None, timeout_s)

    def post(
        self,
        path: str,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The JSON body of a POST, or its text when it is not JSON."""
        return self._call("POST", path, params, body, timeout_s)

    def options(self, path: str) -> Any:
        """The answer to OPTIONS: 405 from a route that exists, 404 from one that does not."""
        return self._call("OPTIONS", path, None, None, None)

    def _call(
        self, method: str, path: str, params: Mapping[str, Any] | None, body: Any, timeout_s: float | None
    ) -> Any:
        begun = time.monotonic()
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = Deadline(limit)
        try:
            with deadline:
                response, text = self._exchange(method, path, params, body, limit, deadline)
        except httpx.HTTPError as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            reason = "the answer did not end in time" if deadline.passed else self._hide(reason)
            self._report(method, path, params, None, begun, "", reason)
            waited = f"after {time.monotonic() - begun:.1f} s (deadline {limit:g} s)"
            raise Unreachable(f"{method} {self.base_url}{path}: no answer {waited}: {reason}") from error
        answer, shown = _decode(text), self._hide(text)
        failure = _failure(response, shown, answer)
        failure = self._hide(failure) if failure else None
        self._report(method, path, params, response.status_code, begun, shown, failure)
        if failure:
            raise HttpFailure(f"{method} {path}: {failure}", response.status_code, shown)
        return answer

    def _exchange(
        self, method: str, path: str, params: Mapping[str, Any] | None, body: Any, limit: float, deadline: Deadline
    ) -> tuple[httpx.Response, str]:
        chunks, size = [], 0
        with self._http.stream(
            method,
            path,
            params=dict(params or {}),
            json=body,
            timeout=limit,
            extensions={"trace": deadline.trace},
        ) as response:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise httpx.ReadError(f"the answer is longer than {MAX_BODY_BYTES} bytes")
        if deadline.passed:
            # A body without a length ends with its connection: cut by us, it looks whole.
            raise httpx.ReadTimeout("the answer did not end in time")
        return response, b"".join(chunks).decode("utf-8", "replace")

    def _hide(self, text: str) -> str:
        """A server may repeat the key in its answer; what is told and kept must not."""
        return text.replace(self._key, "(key)") if self._key else text

    def _report(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        status: int | None,
        begun: float,
        answer: str,
        error: str | None,
    ) -> None:
        if self._tell is not None:
            seconds = round(time.monotonic() - begun, 6)
            self._tell(Exchange(method, path, dict(params or {}), status, seconds, answer[:BODY_EXCERPT], error))


@cache
def _tls() -> ssl.SSLContext:
    """The one TLS context of this process: loading the authorities costs more than most calls."""
    return httpx.create_ssl_context(trust_env=False)


def _decode(text: str) -> Any:
    try:
        answer = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            # Half a surrogate pair cannot be written to a file.
            answer = json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return text
    return answer


def _failure(response: httpx.Response, text: str, answer: Any) -> str | None:
    if not response.is_success:
        return f"answered {response.status_code}: {text[:BODY_EXCERPT]}"
    said = body_failure(answer)
    return f"answered {response.status_code}, but {said}" if said else None
