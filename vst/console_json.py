"""``console=json``: one JSON object a line on standard output, for programs that watch a run."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from vst.console import Tell
from vst.progress import Rate
from vst.provenance.encoding import utc_now
from vst.verdict import LaneVerdict, Verdict


class JsonConsole:
    """The events ``step``, ``bytes``, ``lane`` and ``verdict``; each with time, seconds and the server's state."""

    def __init__(self, tell: Tell | None = None) -> None:
        self._tell = tell or (lambda kind, **fields: None)
        self._begun = time.monotonic()
        self._rate = Rate()
        self._state: Callable[[], str] = lambda: ""

    def watch(self, state: Callable[[], str]) -> None:
        self._state = state

    def close(self) -> None:
        """Nothing is open."""

    def say(self, text: str) -> None:
        self._tell("step", text=text)
        self._line("step", text=text)

    def bytes(self, what: str, done: int, total: int) -> None:
        transfer = self._rate.at(what, done, total)
        if self._rate.due() or transfer.complete:
            rate, left = transfer.rate, transfer.left_s
            self._line("bytes", what=what, done=done, total=total, bytes_per_s=rate, seconds_left=left)

    def lane(self, lane: LaneVerdict) -> None:
        self._tell("lane", lane=lane.lane, verdict=lane.word)
        checks = [
            {"id": check.id, "outcome": check.outcome.value, "reason": check.reason, "warnings": list(check.warnings)}
            for check in lane.checks
        ]
        cause = lane.cause.value if lane.cause else None
        self._line("lane", lane=lane.lane, verdict=lane.word, cause=cause, checks=checks)

    def end(self, verdict: Verdict, server: dict[str, Any], rundir: str) -> None:
        cause = verdict.cause.value if verdict.cause else None
        self._line(
            "verdict", verdict=verdict.word, cause=cause, lane=verdict.lane, exit_code=verdict.exit_code, server=server,
            covered=verdict.covered, evidence=rundir,
        )  # fmt: skip

    def _line(self, event: str, **fields: Any) -> None:
        seconds = round(time.monotonic() - self._begun, 3)
        content = {
            "event": event,
            "utc": utc_now(),
            "seconds": seconds,
            "server_state": self._state() or None,
            **fields,
        }
        try:
            print(json.dumps(content, default=str), flush=True)
        except BrokenPipeError:
            # Who read this is gone; the run goes on.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
