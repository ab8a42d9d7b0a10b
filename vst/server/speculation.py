"""Speculative decoding as a server counts it: how many tokens its draft proposed, and how many were accepted.

A target that was updated and a draft that was not still answers right; only these counters tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vst.server.client import ControlPlane, HttpFailure

_COUNTER = re.compile(
    r"^vllm:spec_decode_num_(?P<name>draft_tokens|accepted_tokens)_total(?:\{[^}]*\})?\s+(?P<value>[0-9.eE+]+)$",
    re.MULTILINE,
)
WEIGHTLESS = ("ngram", "ngram_gpu", "suffix")
"""Methods that draft without weights: nothing of them can be stale."""


@dataclass(frozen=True)
class Drafted:
    """Tokens that were proposed and tokens that were accepted, over all engines of a server."""

    proposed: int
    accepted: int

    @property
    def rate(self) -> float | None:
        """The share that was accepted; None where nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    def since(self, before: Drafted) -> Drafted:
        return Drafted(self.proposed - before.proposed, self.accepted - before.accepted)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rate": None if self.rate is None else round(self.rate, 6)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Drafted:
        return Drafted(int(data["proposed"]), int(data["accepted"]))


def read_drafted(control: ControlPlane) -> Drafted | None:
    """The counters since the server started; None for a server that does not decode speculatively, or does not say."""
    try:
        text = control.get("/metrics")
    except HttpFailure as failure:
        if failure.status in (404, 405):
            return None
        raise
    return parse_drafted(text) if isinstance(text, str) else None


def parse_drafted(metrics: str) -> Drafted | None:
    """The counters in the text of ``/metrics``."""
    found = {"draft_tokens": 0.0, "accepted_tokens": 0.0}
    seen = set()
    for match in _COUNTER.finditer(metrics):
        found[match["name"]] += float(match["value"])
        seen.add(match["name"])
    if seen != found.keys():
        return None
    return Drafted(round(found["draft_tokens"]), round(found["accepted_tokens"]))


def method(config: Mapping[str, Any]) -> str | None:
    """How a server drafts, from its account of its configuration; None when it does not."""
    speculative = config.get("speculative_config")
    if not isinstance(speculative, Mapping):
        return None
    return str(speculative.get("method") or "unknown")
