"""Reading an answer while it comes: a whole body, or a stream event by event, with what is wrong about it.

A reader never judges the tokens. It knows what an answer must consist of; what it cannot read it says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vst.load.seen import Candidate
from vst.oracle.record import cached_tokens
from vst.server.client import body_failure

EXCERPT = 200
DATA = "data:"
DONE = "[DONE]"


class Reading:
    """What was read of one answer so far; ``fault`` is the first thing that was wrong."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.runners: list[Candidate | None] = []
        self.arrivals: list[float] = []
        self.finish: str | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.closed = False
        self.fault: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether the status was a 2xx."""
        return self.status is not None and 200 <= self.status < 300

    def body(self, text: str) -> None:
        """A whole body: an answer that was not streamed, or what came in the place of one."""
        if not self.accepted:
            self._wrong(f"answered {self.status}: {text[:EXCERPT]}")
        elif self._object(text, None):
            self.closed = self.finish is not None

    def line(self, line: str, at: float) -> None:
        """One line of a stream that came at ``at``; blank lines and comments say nothing."""
        if self.closed:
            self._wrong(f"after {DONE} came {line[:EXCERPT]!r}" if line.strip() else None)
        elif line.startswith(DATA):
            text = line.removeprefix(DATA).strip()
            if text == DONE:
                self.closed = True
            else:
                self._object(text, at)
        elif line.strip() and not line.startswith(":"):
            self._wrong(f"a line that is no event: {line[:EXCERPT]!r}")

    def _object(self, text: str, at: float | None) -> bool:
        try:
            content = json.loads(text)
            said = body_failure(content)
            if said:
                self._wrong(f"answered {self.status}, but {said}")
                return False
            self._content(content, at)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError) as error:
            self._wrong(f"not an answer: {type(error).__name__}: {error}: {text[:EXCERPT]!r}")
            return False
        return True

    def _content(self, content: Mapping[str, Any], at: float | None) -> None:
        self._usage(content.get("usage"))
        choices = content["choices"]
        if len(choices) > 1:
            raise ValueError(f"{len(choices)} choices, asked was one")
        if not choices:
            return
        choice = choices[0]
        tokens = [int(token) for token in choice.get("token_ids") or ()]
        if tokens and self.finish is not None:
            raise ValueError("tokens after the finish reason")
        self.tokens += tokens
        self.arrivals += [at] * len(tokens) if at is not None else []
        self._logprobs(choice.get("logprobs"), tokens)
        self.finish = choice.get("finish_reason") or self.finish

    def _usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self.completion_tokens = int(usage["completion_tokens"])
            self.cached_tokens = cached_tokens(usage)

    def _logprobs(self, logprobs: Any, tokens: list[int]) -> None:
        if not tokens:
            return
        named = [_token(text) for text in logprobs["tokens"]]
        if named != tokens:
            raise ValueError(f"token ids {tokens[:8]} and the tokens of the log-probabilities {named[:8]} differ")
        self.logprobs += [float(value) for value in logprobs["token_logprobs"]]
        self.runners += [
            _runner(position, token) for position, token in zip(logprobs["top_logprobs"], tokens, strict=True)
        ]

    def _wrong(self, fault: str | None) -> None:
        self.fault = self.fault or fault


def _token(text: str) -> int:
    return int(text.removeprefix("token_id:"))


def _runner(position: Mapping[str, float], token: int) -> Candidate | None:
    """The likeliest candidate that is not the token itself."""
    others = [(_token(text), float(value)) for text, value in position.items() if _token(text) != token]
    return max(others, key=lambda pair: (pair[1], -pair[0]), default=None)
