"""Probes: fixed token sequences that need no tokenizer and cover the vocabulary and the lengths that are served."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ProbeSet:
    """Token sequences with how they are asked: tokens generated after each, and candidates kept for each position."""

    prompts: tuple[tuple[int, ...], ...]
    output_tokens: int
    top_k: int
    seed: int

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` over everything that decides what is asked."""
        text = json.dumps([self.prompts, self.output_tokens, self.top_k, self.seed], separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def lengths(count: int, shortest: int, longest: int) -> list[int]:
    """``count`` lengths from ``shortest`` to ``longest``, evenly spaced on a logarithmic scale."""
    if count == 1:
        return [longest]
    ratio = longest / shortest
    return [round(shortest * ratio ** (step / (count - 1))) for step in range(count)]


def make_probes(
    vocab_size: int, count: int, shortest: int, longest: int, output_tokens: int, top_k: int, seed: int
) -> ProbeSet:
    """Probes whose tokens are drawn without repetition until the vocabulary is used up, then again from the start."""
    sizes = lengths(count, shortest, longest)
    tokens = _draw(vocab_size, sum(sizes), random.Random(seed))
    prompts, at = [], 0
    for size in sizes:
        prompts.append(tuple(tokens[at : at + size]))
        at += size
    return ProbeSet(tuple(prompts), output_tokens, top_k, seed)


def _draw(vocab_size: int, count: int, rng: random.Random) -> list[int]:
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += rng.sample(range(vocab_size), min(vocab_size, count - len(drawn)))
    return drawn


def covered(probes: ProbeSet, vocab_size: int) -> float:
    """The share of the vocabulary that occurs in a prompt."""
    return len({token for prompt in probes.prompts for token in prompt}) / vocab_size


def cache_probe(vocab_size: int, length: int, seed: int) -> Sequence[int]:
    """A prompt for the cache check, long enough to fill whole blocks."""
    return _draw(vocab_size, length, random.Random(seed + 1))
