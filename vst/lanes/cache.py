"""The cache probe: a prompt that is cached under the old weights and asked again right after the change."""

from __future__ import annotations

from typing import Any

from vst.errors import TransportError
from vst.lanes.asking import vocab_size
from vst.lanes.session import Server, Session
from vst.oracle.probes import cache_probe
from vst.oracle.record import cached_tokens

BLOCKS = 2
DEFAULT_BLOCK = 16


class CacheProbe:
    """Seeds the prefix cache of one seat and counts the cached tokens of its first answer after a change."""

    def __init__(self, session: Session, seat: Server) -> None:
        facts, conf = session.need("facts"), session.conf
        cache = facts.config.get("cache_config") or {}
        self.prefix_caching = cache.get("enable_prefix_caching")
        block = cache.get("block_size")
        block = block if isinstance(block, int) and block > 0 else DEFAULT_BLOCK
        room = (facts.max_model_len or conf.oracle.max_tokens) - 2
        self._prompt = list(cache_probe(vocab_size(session), min(BLOCKS * block + 1, room), conf.oracle.seed))
        self._session = session
        self._seat = seat
        self._before: int | None = None

    def seed(self) -> None:
        """Ask twice under the old weights: the second answer shows whether cached tokens can be seen at all."""
        self._ask()
        self._before = self._ask()

    def ask_again(self) -> dict[str, Any]:
        """Ask once under the new weights, before anything else."""
        return {"before": self._before, "after": self._ask(), "prefix_caching": self.prefix_caching}

    def _ask(self) -> int | None:
        server, conf = self._seat, self._session.conf
        body = {
            "model": server.name,
            "prompt": self._prompt,
            "max_tokens": 1,
            "temperature": 0.0,
            "seed": conf.oracle.seed,
            "ignore_eos": True,
            "stream": False,
        }
        answer = server.control.post("/v1/completions", body, timeout_s=conf.server.request_timeout_s)
        usage = answer.get("usage") if isinstance(answer, dict) else None
        if not isinstance(usage, dict):
            raise TransportError(f"/v1/completions: an answer without usage: {str(answer)[:200]}")
        return cached_tokens(usage)
