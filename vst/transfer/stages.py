"""How long each stage of a push was at work, on how many bytes, and how much of that went on side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

STAGES = ("read", "hash", "stage", "broadcast", "server_update")
"""In the order of the bytes. ``server_update`` is the call in which a server receives and loads."""


@dataclass
class Stage:
    """Seconds since the push began; ``busy_s`` is summed over threads, so it may exceed the time from first to last."""

    bytes: int = 0
    busy_s: float = 0.0
    first_s: float | None = None
    last_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        rounded = {key: round(value or 0.0, 6) for key, value in vars(self).items() if key != "bytes"}
        return {"bytes": self.bytes, **rounded}


class Stopwatch:
    """Collects what the threads of one push did; ``began`` is its zero on the monotonic clock."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._stages: dict[str, Stage] = {}
        self._lock = threading.Lock()

    @contextmanager
    def timed(self, stage: str, nbytes: int) -> Iterator[None]:
        """Count the block to ``stage``, if it ends well."""
        begun = time.monotonic()
        yield
        self.add(stage, begun, time.monotonic() - begun, nbytes)

    def add(self, stage: str, begun: float, busy_s: float, nbytes: int) -> None:
        """Work of ``busy_s`` seconds that began at ``begun`` on the monotonic clock and ends now."""
        now = time.monotonic() - self.began
        with self._lock:
            one = self._stages.setdefault(stage, Stage())
            one.bytes += nbytes
            one.busy_s += busy_s
            start = begun - self.began
            one.first_s = start if one.first_s is None else min(one.first_s, start)
            one.last_s = now if one.last_s is None else max(one.last_s, now)

    def to_json(self) -> list[dict[str, Any]]:
        """One object for each stage that did something, in the order of ``STAGES``."""
        with self._lock:
            known = {name: stage.to_json() for name, stage in self._stages.items()}
        return [{"stage": name, **known[name]} for name in STAGES if name in known]
