"""One request on its way through the double: what was asked, how far it is, and what its caller waits for."""

from __future__ import annotations

import math
import queue
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vst.selftest.decoder import Past

DEFAULT_TOKENS = 16


class BadRequest(Exception):
    """The body of a request is not one that this server takes."""


class EngineDead(Exception):
    """The engine behind the routes has died; nothing but a restart helps."""


@dataclass(frozen=True)
class Asked:
    """The sampling parameters of one completion."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int | None
    logprobs: int | None
    prompt_logprobs: int | None
    stream: bool
    usage_in_stream: bool
    stop: frozenset[int]
    min_tokens: int


def read(body: Any, limit: int, vocab: int, eos: int | None, text: bool = True) -> Asked:
    """The parameters in a completion's body; BadRequest says what is wrong."""
    if not isinstance(body, Mapping):
        raise BadRequest("the body is no JSON object")
    prompt = _prompt(body.get("prompt"), vocab, text)
    wanted = int(body.get("max_tokens") or DEFAULT_TOKENS)
    if not prompt or len(prompt) + wanted > limit:
        raise BadRequest(f"{len(prompt)} prompt tokens and {wanted} more: must be from 1 to {limit} in all")
    if body.get("n", 1) != 1:
        raise BadRequest("n must be 1")
    options = body.get("stream_options") or {}
    stop = {int(token) for token in body.get("stop_token_ids") or ()}
    if eos is not None and not body.get("ignore_eos", False):
        stop.add(eos)
    return Asked(
        prompt=prompt,
        max_tokens=wanted,
        temperature=float(body.get("temperature", 1.0)),
        seed=body.get("seed"),
        logprobs=body.get("logprobs"),
        prompt_logprobs=body.get("prompt_logprobs"),
        stream=bool(body.get("stream", False)),
        usage_in_stream=bool(options.get("include_usage", False)),
        stop=frozenset(stop),
        min_tokens=int(body.get("min_tokens") or 0),
    )


def _prompt(value: Any, vocab: int, text: bool) -> tuple[int, ...]:
    if isinstance(value, str) and text:
        return tuple(value.encode())
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list) or not all(isinstance(token, int) and 0 <= token < vocab for token in value):
        raise BadRequest(f"prompt must be a string or a list of token ids below {vocab}")
    return tuple(value)


@dataclass(frozen=True)
class Scored:
    """One token with its log-probability, its rank among all, and the likeliest candidates."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class End:
    """The end of a request: ``length``, ``stop``, ``abort``, or an error that the caller must see."""

    reason: str
    error: str | None = None


@dataclass(eq=False)
class Generation:
    """A request inside the engine; its caller reads ``out`` until an ``End`` comes."""

    id: str
    asked: Asked
    out: queue.SimpleQueue[Scored | End] = field(default_factory=queue.SimpleQueue)
    tokens: list[int] = field(default_factory=list)
    past: Past = ()
    cached: int = 0
    prompt_scores: list[Scored] | None = None
    generator: torch.Generator | None = None
    frozen: bool = False
    ends_at: int | None = None
    ended: bool = False

    @property
    def sequence(self) -> list[int]:
        return [*self.asked.prompt, *self.tokens]

    def finish(self, reason: str, error: str | None = None) -> None:
        if not self.ended:
            self.ended = True
            self.past = ()
            self.out.put(End(reason, error))


def choose(logits: Tensor, generation: Generation) -> int:
    """The next token: the likeliest at temperature 0, else one drawn by the request's own seeded generator."""
    asked = generation.asked
    if asked.temperature <= 0:
        return int(logits.argmax())
    if generation.generator is None:
        seed = asked.seed if asked.seed is not None else torch.seed()
        generation.generator = torch.Generator().manual_seed(seed)
    likely = (logits / asked.temperature).softmax(-1)
    if not bool(torch.isfinite(likely).all()):
        return 0
    return int(torch.multinomial(likely, 1, generator=generation.generator))


def score(logits: Tensor, token: int, count: int | None) -> Scored:
    """How a token was scored, in single precision, with the ``count`` likeliest and itself."""
    logprobs = logits.log_softmax(-1).to(torch.float32)
    own = float(logprobs[token])
    likeliest = logprobs.topk(min(count or 0, len(logprobs)))
    top = [(int(t), float(v)) for t, v in zip(likeliest.indices, likeliest.values, strict=True)]
    if token not in dict(top):
        top.append((token, own))
    rank = int((logprobs > own).sum()) + 1 if math.isfinite(own) else 0
    return Scored(token, own, rank, tuple(top))
