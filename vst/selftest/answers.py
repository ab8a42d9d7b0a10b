"""What the double answers to a completion, in the form of vLLM's ``/v1/completions``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from vst.selftest.generation import Generation, Scored


def text_of(tokens: Sequence[int]) -> str:
    """Tokens as text: the first 256 are bytes, as in the tiny tokenizer; others are shown by number."""
    return "".join(chr(token) if token < 256 else f"<{token}>" for token in tokens)


def whole(generation: Generation, model: str, scored: Sequence[Scored], reason: str, cached: bool) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    return {
        **_head(generation, model),
        "choices": [_choice(generation, scored, reason, generation.prompt_scores)],
        "usage": usage(generation, len(scored), cached),
    }


def chunk(generation: Generation, model: str, scored: Sequence[Scored], reason: str | None) -> dict[str, Any]:
    """One event of a stream."""
    return {**_head(generation, model), "choices": [_choice(generation, scored, reason, None)]}


def last_chunk(generation: Generation, model: str, count: int, cached: bool) -> dict[str, Any]:
    """The event that carries a stream's usage."""
    return {**_head(generation, model), "choices": [], "usage": usage(generation, count, cached)}


def usage(generation: Generation, count: int, cached: bool) -> dict[str, Any]:
    prompt = len(generation.asked.prompt)
    details = {"cached_tokens": generation.cached} if cached else None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": count,
        "total_tokens": prompt + count,
        "prompt_tokens_details": details,
    }


def _head(generation: Generation, model: str) -> dict[str, Any]:
    return {"id": generation.id, "object": "text_completion", "created": int(time.time()), "model": model}


def _choice(
    generation: Generation, scored: Sequence[Scored], reason: str | None, prompt: Sequence[Scored] | None
) -> dict[str, Any]:
    tokens = [one.token for one in scored]
    return {
        "index": 0,
        "text": text_of(tokens),
        "logprobs": _logprobs(scored) if generation.asked.logprobs is not None else None,
        "finish_reason": reason,
        "stop_reason": tokens[-1] if reason == "stop" and tokens else None,
        "token_ids": tokens,
        "prompt_token_ids": list(generation.asked.prompt),
        "prompt_logprobs": _prompt_logprobs(prompt) if prompt is not None else None,
    }


def _logprobs(scored: Sequence[Scored]) -> dict[str, Any]:
    return {
        "text_offset": list(range(len(scored))),
        "token_logprobs": [one.logprob for one in scored],
        "tokens": [f"token_id:{one.token}" for one in scored],
        "top_logprobs": [{f"token_id:{token}": value for token, value in one.top} for one in scored],
    }


def _prompt_logprobs(prompt: Sequence[Scored]) -> list[Any]:
    return [None, *({str(one.token): {"logprob": one.logprob, "rank": one.rank}} for one in prompt)]
