"""What the server held when, read from the marks that a lane leaves in the log of its load. Pure functions.

The marks, in the order in which they may come::

    holds claim        the server serves this and nothing moves it
    pausing mode       before the call that pauses
    paused             after it was acknowledged
    push_begin claim   before the transaction: from here on the content may be the new one
    push_end claim     after its finish was acknowledged: from here on it is
    resuming           before the call that resumes
    resumed            after it was acknowledged
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vst.errors import VerificationError

MARKS = ("holds", "pausing", "paused", "push_begin", "push_end", "resuming", "resumed")


@dataclass(frozen=True)
class Holding:
    """Content that the server may have answered from between two times, in seconds of the monotonic clock."""

    claim: str
    since: float
    until: float = math.inf


@dataclass(frozen=True)
class Pause:
    """A pause: from before the call to after the resume's answer, and inside it the time when nothing may move."""

    mode: str
    begun: float
    still: float = math.inf
    moving: float = math.inf
    over: float = math.inf


@dataclass(frozen=True)
class History:
    """The holdings, pauses and pushes of one load; a push is the time from its begin to its end."""

    holdings: tuple[Holding, ...]
    pauses: tuple[Pause, ...]
    pushes: tuple[tuple[float, float], ...]

    def claims(self, sent: float, ended: float) -> tuple[str, ...]:
        """What an answer of that time may belong to, oldest first, each once.

        A request that came during a pause is answered after it: not by what the server held when it came.
        """
        held = next((pause for pause in self.pauses if pause.still <= sent <= pause.moving), None)
        begun = min(ended, held.moving) if held else sent
        found = [one.claim for one in self.holdings if one.since <= ended and begun < one.until]
        return tuple(dict.fromkeys(found))

    def crossed(self, sent: float, ended: float) -> float | None:
        """When the first push began that an answer was open over: asked of one content, ended under another."""
        return next((begun for begun, done in self.pushes if sent < begun and ended > done), None)

    def paused(self, sent: float, ended: float) -> Pause | None:
        """The first pause that an answer was open in."""
        return next((pause for pause in self.pauses if sent < pause.over and ended > pause.begun), None)


def history(marks: Sequence[Mapping[str, Any]]) -> History:
    """Read the marks of a load; VerificationError when they do not say what was held, or in an impossible order."""
    holdings: list[Holding] = []
    pauses: list[Pause] = []
    pushes: list[tuple[float, float]] = []
    for mark in marks:
        what, at = mark["what"], float(mark["at"])
        if what == "holds" and not holdings:
            holdings.append(Holding(str(mark["claim"]), -math.inf))
        elif what == "push_begin" and holdings:
            holdings.append(Holding(str(mark["claim"]), at))
            pushes.append((at, math.inf))
        elif what == "push_end" and pushes and math.isinf(pushes[-1][1]):
            pushes[-1] = (pushes[-1][0], at)
            holdings[:-1] = [Holding(one.claim, one.since, min(one.until, at)) for one in holdings[:-1]]
        elif what == "pausing":
            pauses.append(Pause(str(mark["mode"]), at))
        elif what in ("paused", "resuming", "resumed") and pauses:
            pauses[-1] = _further(pauses[-1], what, at)
        else:
            known = f"after {[one['what'] for one in marks[: marks.index(mark)]]}"
            raise VerificationError(f"a mark that cannot come here: {what!r} {known}; marks are {', '.join(MARKS)}")
    if not holdings:
        raise VerificationError("no mark says what the server held when the load began: mark 'holds' first")
    return History(tuple(holdings), tuple(pauses), tuple(pushes))


def _further(pause: Pause, what: str, at: float) -> Pause:
    still = at if what == "paused" else pause.still
    moving = at if what == "resuming" else pause.moving
    over = at if what == "resumed" else pause.over
    return Pause(pause.mode, pause.begun, still, moving, over)
