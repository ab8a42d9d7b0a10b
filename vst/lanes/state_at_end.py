"""Where the servers are at the end of a run, what they hold, and what becomes of them now."""

from __future__ import annotations

from typing import Any

from vst.lanes.fleet import WORST_FIRST, Server
from vst.lanes.session import Session
from vst.server.lifecycle import Lifecycle


def state_at_end(session: Session) -> dict[str, Any]:
    """The state of the only server, or the worst of several with each of them under ``servers``."""
    if not session.servers:
        return {"state": "unknown", "holds": "unknown", "left": _before_any(session)}
    known = [one.lifecycle for one in session.fleet.replicas] if session.fleet else [None] * len(session.servers)
    states = [_state(server, lifecycle) for server, lifecycle in zip(session.servers, known, strict=True)]
    if len(states) == 1:
        return states[0]
    worst = min(states, key=lambda state: WORST_FIRST.index(state["state"]))
    told = {key: "; ".join(dict.fromkeys(state[key] for state in states)) for key in ("holds", "left")}
    titles = [server.title for server in session.servers]
    each = [{"server": title, **state} for title, state in zip(titles, states, strict=True)]
    return {"state": worst["state"], **told, "servers": each}


def _before_any(session: Session) -> str:
    """No server came under test; those that were started towards it, or for a reference, are stopped by now."""
    started = [str(one["label"]) for one in session.run.evidence.servers if one.get("argv") is not None]
    return f"stopped before any came under test: {', '.join(started)}" if started else "no server was used"


def _state(server: Server, lifecycle: Lifecycle | None) -> dict[str, str]:
    state = lifecycle.state if lifecycle else "unknown"
    if server.process is not None:
        if not server.process.alive:
            state = "tainted" if state == "tainted" else "dead"
        left = "stopped"
    else:
        left = f"{lifecycle.left}; cleared by {lifecycle.remedy}" if lifecycle and state == "tainted" else state
    return {"state": state, "holds": lifecycle.holds if lifecycle else "unknown", "left": left}
