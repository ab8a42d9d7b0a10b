"""How far a run is, from the files that it leaves behind as it goes: for those who did not start it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from vst.attempt import RUN_FILE, read_json
from vst.harmless import plain
from vst.provenance.encoding import moment
from vst.provenance.rundir import EVENTS

TAIL_BYTES = 1 << 20


@dataclass
class Progress:
    """What the event log says: the lanes that ended, the step, the server's state, the bytes of the last transfer.

    ``quiet_s`` is how long ago anything was written; ``alive`` is None where the process cannot be seen from here.
    """

    lanes: list[str] = field(default_factory=list)
    step: str = ""
    state: str = ""
    sent: tuple[int, int] | None = None
    quiet_s: float | None = None
    alive: bool | None = None

    def __str__(self) -> str:
        parts = ["not ended", *self.lanes, self.step, f"server {self.state}" if self.state else ""]
        if self.sent is not None and self.sent[0] < self.sent[1]:
            parts.append(f"sent {self.sent[0] / 1e6:,.1f} of {self.sent[1] / 1e6:,.1f} MB")
        if self.quiet_s is not None:
            parts.append(f"last sign {self.quiet_s:.0f} s ago")
        if self.alive is False:
            parts.append("its process is gone: it was killed, and leaves no verdict")
        return "  ·  ".join(part for part in parts if part)


def read_progress(path: Path) -> Progress:
    """The progress of the run in ``path``; of a long log its end is enough for all but the lanes."""
    found = Progress()
    events = path / EVENTS
    if events.is_file():
        for event in _events(events):
            _note(found, event)
    run = read_json(path / RUN_FILE) or {}
    found.alive = _alive(run)
    return found


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        for line in file:
            try:
                content = json.loads(line)
            except ValueError:
                continue  # the first line of a tail is cut, the last one may not be whole yet
            if isinstance(content, dict):
                yield content


def _note(found: Progress, event: Mapping[str, Any]) -> None:
    kind = event.get("kind")
    if kind == "lane":
        found.lanes.append(plain(f"{event.get('lane')} {event.get('verdict')}", 40))
    elif kind == "step":
        found.step = plain(event.get("text"), 120).split("\n")[0]
    elif kind == "server_state":
        found.state = plain(event.get("after"), 40)
    elif kind == "publisher_progress":
        found.sent = (int(event.get("bytes", 0)), int(event.get("total", 0)))
    found.quiet_s = _ago(event.get("utc"))


def _ago(utc: Any) -> float | None:
    then = moment(utc)
    return None if then is None else max(0.0, time.time() - then)


def _alive(run: Mapping[str, Any]) -> bool | None:
    """Whether the process that wrote ``run.json`` goes on; None on another host or where it is not said."""
    pid, started = run.get("pid"), moment(run.get("started"))
    if not isinstance(pid, int) or started is None or run.get("host") != socket.gethostname():
        return None
    try:
        return psutil.Process(pid).create_time() <= started  # a later process may have the same number
    except psutil.NoSuchProcess:
        return False
