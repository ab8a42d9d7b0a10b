"""What became of one request: plain data, as it is written to the log of a load and read back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Candidate = tuple[int, float]
"""(token, log-probability)."""


@dataclass(frozen=True)
class Seen:
    """One request and its answer, as far as it came. Times are seconds of the monotonic clock.

    ``number`` counts the requests of a load from 0, ``prompt`` is an index of its workload. ``logprobs`` are those of
    ``tokens``, ``runners`` the likeliest other candidate at each position where the server named one. ``arrivals`` are
    when each token of a stream came. ``closed`` says that the answer ended as an answer does: ``[DONE]`` for a stream,
    a whole JSON object otherwise. ``error`` says what went wrong, and is None where nothing did.
    """

    number: int
    prompt: int
    stream: bool
    sent: float
    ended: float
    status: int | None = None
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    runners: tuple[Candidate | None, ...] = ()
    arrivals: tuple[float, ...] = ()
    finish: str | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    closed: bool = False
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Seen:
        """Read one line of a log back; KeyError, TypeError or ValueError when it is not one."""
        numbers = {key: _number(data[key]) for key in ("status", "completion_tokens", "cached_tokens")}
        texts = {key: None if data[key] is None else str(data[key]) for key in ("finish", "error")}
        return Seen(
            number=int(data["number"]),
            prompt=int(data["prompt"]),
            stream=data["stream"] is True,
            sent=float(data["sent"]),
            ended=float(data["ended"]),
            tokens=tuple(int(token) for token in data["tokens"]),
            logprobs=tuple(float(value) for value in data["logprobs"]),
            runners=tuple(None if one is None else (int(one[0]), float(one[1])) for one in data["runners"]),
            arrivals=tuple(float(value) for value in data["arrivals"]),
            closed=data["closed"] is True,
            **numbers,  # type: ignore[arg-type]
            **texts,  # type: ignore[arg-type]
        )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
