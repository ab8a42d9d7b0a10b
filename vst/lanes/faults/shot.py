"""The moment of a fault: when half of a push has left the publisher."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vst.lanes.session import Session


@dataclass
class Shot:
    """When a fault struck, by the monotonic clock; None while it has not. ``deadline_s``: what the tool waits then."""

    at: float | None = None
    deadline_s: float = 0.0

    def now(self) -> None:
        self.at = self.at or time.monotonic()


@contextmanager
def half_way(session: Session, strike: Callable[[], None], deadline_s: float = 0.0) -> Iterator[Shot]:
    """Calls ``strike`` once, when half of the bytes of the push were read and are on their way."""
    shot = Shot(deadline_s=deadline_s)

    def heard(report: dict[str, Any]) -> None:
        if shot.at is None and report["event"] == "progress" and 2 * report["bytes"] >= report["total"]:
            shot.now()
            strike()

    session.watchers.append(heard)
    try:
        yield shot
    finally:
        session.watchers.remove(heard)
