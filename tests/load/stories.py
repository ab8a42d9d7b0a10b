"""Answers, expected answers and logs that are made up for the judges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vst.load.expected import Expected, Path
from vst.load.log import LoadLog
from vst.load.seen import Seen
from vst.load.workload import Workload

A = (11, 12, 13, 14, 15, 16)
B = (21, 22, 23, 24, 25, 26)
WORK = Workload(((1, 2),), len(A), 0.5, 1)
QUIET = ({"what": "holds", "at": 0.0, "claim": "A"},)
UPDATED = (
    *QUIET,
    {"what": "pausing", "at": 1.0, "mode": "keep"},
    {"what": "paused", "at": 1.1},
    {"what": "push_begin", "at": 2.0, "claim": "B"},
    {"what": "push_end", "at": 3.0, "claim": "B"},
    {"what": "resuming", "at": 4.0},
    {"what": "resumed", "at": 4.1},
)
"""A server that holds A, is paused from 1 to 4 and gets B between 2 and 3."""


def path(tokens: tuple[int, ...], runner: Mapping[int, tuple[int, float]] | None = None) -> Path:
    """A path whose tokens lead by 5, but where ``runner`` names another candidate."""
    runners = tuple((runner or {}).get(position, (99, -6.0)) for position in range(len(tokens)))
    return Path(tokens, (-1.0,) * len(tokens), runners)


def states(spread: float = 0.0, **paths: Path) -> dict[str, Expected]:
    known = {"A": path(A), "B": path(B), **paths}
    return {claim: Expected(claim, (one,), spread, 3) for claim, one in known.items()}


def seen(tokens: tuple[int, ...], sent: float = 0.1, ended: float = 0.9, **fields: Any) -> Seen:
    """A whole answer of ``tokens``; its tokens came evenly until its end when it was streamed."""
    stream = fields.get("stream", True)
    step = (ended - sent) / max(len(tokens), 1)
    known: dict[str, Any] = {
        "number": 0,
        "prompt": 0,
        "stream": stream,
        "status": 200,
        "arrivals": tuple(ended - step * back for back in reversed(range(len(tokens)))) if stream else (),
        "logprobs": (-1.0,) * len(tokens),
        "runners": (None,) * len(tokens),
        "finish": "length",
        "completion_tokens": len(tokens),
        "closed": True,
    }
    return Seen(sent=sent, ended=ended, tokens=tokens, **{**known, **fields})


def log(*answers: Seen, marks: Any = QUIET, sent: int | None = None) -> LoadLog:
    return LoadLog(WORK, answers, marks, 0.0, len(answers) if sent is None else sent, 0)
