"""What is asked of a server under load, how often, and how long it may take: plain data, drawn from one seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vst.oracle.probes import make_probes

RUNNERS = 2
"""Candidates asked for each position: the token and the one behind it, which tells a near tie from a change."""


@dataclass(frozen=True)
class Workload:
    """Prompts as token ids, the tokens generated for each, and the share of requests that are streamed."""

    prompts: tuple[tuple[int, ...], ...]
    output_tokens: int
    stream_share: float
    seed: int

    def draw(self, number: int) -> tuple[int, bool]:
        """Prompt and streaming of request ``number``: the same for one seed, whatever the order of the answers.

        All prompts come once, in an order of their own, before any comes again.
        """
        turn, place = divmod(number, len(self.prompts))
        order = random.Random(f"{self.seed}/{turn}").sample(range(len(self.prompts)), len(self.prompts))
        return order[place], random.Random(f"{self.seed}/stream/{number}").random() < self.stream_share

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Workload:
        prompts = tuple(tuple(int(token) for token in prompt) for prompt in data["prompts"])
        return Workload(prompts, int(data["output_tokens"]), float(data["stream_share"]), int(data["seed"]))


@dataclass(frozen=True)
class Pace:
    """How requests come: a closed loop of ``concurrency`` askers that wait for their answers, or, where ``rate`` is
    set, an open one with ``rate`` arrivals a second on average, which waits for nobody.

    No more than ``max_in_flight`` are open at once and ``max_requests`` are sent in all; an arrival of the open loop
    that finds the first limit reached is counted and not sent.
    """

    concurrency: int
    rate: float | None
    max_in_flight: int
    max_requests: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Target:
    """The server that is asked; ``headers`` go with every request (``X-data-parallel-rank`` addresses one rank)."""

    base_url: str
    model: str
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def make_workload(
    vocab_size: int, prompts: int, shortest: int, longest: int, output_tokens: int, stream_share: float, seed: int
) -> Workload:
    """Prompts of ``shortest`` to ``longest`` tokens; every token of the vocabulary once before any comes again."""
    drawn = make_probes(vocab_size, prompts, shortest, longest, output_tokens, RUNNERS, seed)
    return Workload(drawn.prompts, output_tokens, stream_share, seed)


def request(target: Target, workload: Workload, prompt: int, stream: bool) -> dict[str, Any]:
    """The completion request: every sampling field is given, so that no default of the server decides."""
    body = {
        "model": target.model,
        "prompt": list(workload.prompts[prompt]),
        "max_tokens": workload.output_tokens,
        "min_tokens": workload.output_tokens,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": workload.seed,
        "n": 1,
        "stream": stream,
        "ignore_eos": True,
        "logprobs": RUNNERS,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
        "add_special_tokens": False,
    }
    return {**body, "stream_options": {"include_usage": True}} if stream else body
