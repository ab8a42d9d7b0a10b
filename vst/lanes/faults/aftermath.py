"""What is seen after a fault, and whether it is what must be seen. ``look`` asks, the rest judges."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vst.errors import TransportError, VstError
from vst.lanes.fleet import Replica, Server
from vst.lanes.session import Session
from vst.lanes.transaction import TransactionFailed
from vst.provenance.rundir import EVENTS
from vst.server.observe import read_flag
from vst.verdict import Check, Outcome

DIED_S = 5.0
FORBIDDEN = ("/finish_weight_update", "/resume")
EXPECTED = "the push failed in time, no finish and no resume were sent, no server serves, and the record says tainted"


@dataclass(frozen=True)
class Aftermath:
    """``failure`` is None when the push ended as if nothing had happened, ``struck`` whether the fault took place.

    ``seconds`` from the fault to the end of the push with everything that follows a failure, ``allowed_s`` how long
    that may take; ``posts`` are the calls of that transaction in order; ``recorded`` is the state in its file;
    ``servers`` say of each what it shows.
    """

    failure: str | None
    outcome: str | None
    struck: bool
    seconds: float | None
    allowed_s: float
    posts: tuple[str, ...]
    recorded: str | None
    file: str | None
    servers: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "posts": list(self.posts), "servers": list(self.servers)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Aftermath:
        return Aftermath(**{**data, "posts": tuple(data["posts"]), "servers": tuple(data["servers"])})


def look(
    session: Session, name: str, failure: TransactionFailed | None, struck: float | None, allowed_s: float
) -> Aftermath:
    """Look at the events of the fault called ``name``, the record of its transaction, and the servers."""
    ended = time.monotonic()
    content = json.loads((session.run / failure.file).read_text()) if failure else {}
    return Aftermath(
        failure=str(failure) if failure else None,
        outcome=failure.outcome.value if failure else None,
        struck=struck is not None,
        seconds=round(ended - struck, 3) if struck is not None else None,
        allowed_s=allowed_s,
        posts=tuple(posts((session.run / EVENTS).read_text().splitlines(), name)),
        recorded=content.get("server", {}).get("state"),
        file=failure.file if failure else None,
        servers=tuple(_shown(session, replica) for replica in session.need("fleet").replicas),
    )


def posts(lines: Sequence[str], name: str) -> list[str]:
    """The paths that were posted to, by the run and by its publisher, between the two events that tell of a fault."""
    found = [json.loads(line) for line in lines]
    marks = [place for place, one in enumerate(found) if one["kind"] in ("fault", "fault_over") and one["name"] == name]
    calls = found[marks[0] : marks[1]]
    return [one["path"] for one in calls if one["kind"] in ("http", "publisher_http") and one["method"] == "POST"]


def _shown(session: Session, replica: Replica) -> dict[str, Any]:
    """What a server shows: its flag, and whether a request gets an answer. Only a paused one can be asked safely."""
    lifecycle, server = replica.lifecycle, replica.server
    paused: bool | None = None
    try:
        paused = read_flag(server.control, "/is_paused", "is_paused")
        flag = str(paused)
    except VstError as error:
        flag = f"no answer: {type(error).__name__}"
        if server.process is not None and server.process.ended_within(DIED_S):
            lifecycle.died("its processes have ended")
    seats = [seat for seat in session.seats if seat.control.base_url == server.control.base_url]
    answered = [_answered(session, seat) for seat in seats] if paused is True else []
    remedy = lifecycle.remedy if lifecycle.state == "tainted" else "a restart only: its process has ended"
    state = {"server": server.title, "state": lifecycle.state, "left": lifecycle.left, "remedy": remedy}
    return {**state, "paused": paused, "flag": flag, "answered": any(answered)}


def _answered(session: Session, seat: Server) -> bool:
    """Whether a request that is sent now gets an answer; one that is held is taken back after ``endurance.quiet_s``."""
    prompt = list(session.need("probes").prompts[0])
    body = {"model": seat.name, "prompt": prompt, "max_tokens": 1, "temperature": 0.0, "stream": False}
    try:
        seat.control.post("/v1/completions", body, timeout_s=session.conf.endurance.quiet_s)
    except TransportError:
        return False
    return True


def fault_check(name: str, seen: Aftermath) -> Check:
    """``fault.<name>``: everything that must hold after a push was broken in the middle."""
    id = f"fault.{name}"
    if not seen.struck:
        reason = f"the fault did not take place before the push ended: {seen.failure or 'it was finished'}"
        return Check(id, Outcome.INCONCLUSIVE, seen.to_json(), EXPECTED, seen.allowed_s, reason, seen.file)
    problems = [text for text in _problems(seen) if text]
    outcome = Outcome.FAIL if problems else Outcome.PASS
    return Check(id, outcome, seen.to_json(), EXPECTED, seen.allowed_s, "; ".join(problems), seen.file)


def _problems(seen: Aftermath) -> list[str]:
    late = seen.seconds is None or seen.seconds > seen.allowed_s
    sent = [path for path in FORBIDDEN if path in seen.posts]
    serving = [one["server"] or "the server" for one in seen.servers if one["answered"] or one["paused"] is False]
    wrong = [one for one in seen.servers if one["state"] not in ("tainted", "dead")]
    return [
        "" if seen.failure else "the push was broken and ended as a success",
        f"the verdict on it took {seen.seconds} s, allowed are {seen.allowed_s:g} s" if late else "",
        f"sent after the fault: {', '.join(sent)}" if sent else "",
        f"still serving: {', '.join(serving)}" if serving else "",
        f"known as {', '.join(one['state'] for one in wrong)}, expected tainted or dead" if wrong else "",
        "" if seen.recorded == "tainted" or not seen.failure else f"recorded as {seen.recorded}, expected tainted",
    ]
