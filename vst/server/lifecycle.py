"""The state of one server as this run knows it, and the only way in which lane code moves it.

A failure taints: from then on nothing is finished, resumed or woken; the server is paused if that is still possible.
Only a full push that verifies, or a restart, would clear it, and this run does neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from vst.errors import VerificationError, VstError
from vst.server.client import ControlPlane, HttpFailure

STATES = ("serving", "paused", "asleep", "updating", "tainted", "dead", "unknown")

LEGAL: dict[str, tuple[tuple[str, ...], str]] = {
    "pause": (("serving", "paused"), "paused"),
    "reset": (("paused",), "paused"),
    "push": (("paused",), "updating"),
    "pushed": (("updating",), "paused"),
    "resume": (("paused",), "serving"),
    "ask": (("serving",), "serving"),
}
"""Each move: the states from which it is legal, and the state that it ends in."""

RESETS = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
RESET_TRIES = 5


class IllegalMove(VerificationError):
    """A move that the server's state does not allow; nothing was sent."""


class Lifecycle:
    """Moves one server between its states and remembers where it is and what it holds."""

    def __init__(self, control: ControlPlane, tell: Callable[..., None]) -> None:
        self._control = control
        self._tell = tell
        self.state = "unknown"
        self.holds = "unknown"
        self.verified = False
        self.left = "as it was found"

    def move(self, name: str) -> None:
        """Make the move in the model; IllegalMove when the state does not allow it."""
        allowed, after = LEGAL[name]
        if self.state not in allowed:
            raise IllegalMove(f"{name} is refused: the server is {self.state}, expected {' or '.join(allowed)}")
        self._set(after)

    def _set(self, state: str, reason: str = "") -> None:
        if state != self.state:
            self._tell("server_state", before=self.state, after=state, holds=self.holds, reason=reason)
        self.state = state

    def found(self, paused: bool, sleeping: bool, holds: str) -> None:
        """Take over what the server said of itself when it was first asked."""
        self.holds, self.verified = holds, True
        self._set("asleep" if sleeping else "paused" if paused else "serving")

    def pause(self, mode: str) -> None:
        self.move("pause")
        self._control.post("/pause", params={"mode": mode})
        self._expect_paused(True)

    def reset_caches(self) -> None:
        """Empty the three caches; the prefix cache must say ``success: true``, the others only have to answer."""
        self.move("reset")
        for path in RESETS:
            self._reset(path)

    def _reset(self, path: str) -> None:
        for attempt in range(1, RESET_TRIES + 1):
            try:
                answer = self._control.post(path)
            except HttpFailure:
                # Blocks that are still held are given back within moments, or never.
                if attempt == RESET_TRIES:
                    raise
                time.sleep(0.2 * attempt)
                continue
            if path == RESETS[0] and not (isinstance(answer, dict) and answer.get("success") is True):
                raise VerificationError(f"{path} answered {answer!r}, expected success: true")
            return

    def begin_push(self, what: str) -> None:
        self.move("push")
        self.holds, self.verified = f"part of {what}", False

    def end_push(self, what: str) -> None:
        self.move("pushed")
        self.holds = what

    def resume(self) -> None:
        self.move("resume")
        self._control.post("/resume")
        self._expect_paused(False)

    def verify(self) -> None:
        """The content was compared and is what was claimed."""
        self.verified = True

    def taint(self, reason: str) -> None:
        """Give the server up: pause it if it still answers, and send nothing else, ever."""
        if self.state in ("tainted", "dead"):
            return
        self._set("tainted", reason)
        try:
            self._control.post("/pause", params={"mode": "keep"}, timeout_s=10.0)
            self._expect_paused(True)
        except VstError as error:
            self.left = f"not known to be paused: {error}"
            self._tell("pause_failed", error=str(error))
        else:
            self.left = "paused"

    def died(self, reason: str) -> None:
        self._set("dead", reason)

    def _expect_paused(self, expected: bool) -> None:
        answer: Any = self._control.get("/is_paused")
        found = answer.get("is_paused") if isinstance(answer, dict) else None
        if found is not expected:
            raise VerificationError(
                f"/is_paused says {found}, expected {expected}: the server did not do what it answered"
            )
