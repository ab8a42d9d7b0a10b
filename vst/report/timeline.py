"""The run over time: lanes, server states and phases as spans of seconds since the run began; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vst.provenance.encoding import moment
from vst.report.material import Material

STATES = ("serving", "paused", "asleep", "updating", "tainted", "dead", "unknown")
HELD = ("paused", "updating", "asleep")
MAX_SPANS = 400


@dataclass(frozen=True)
class Span:
    """Something that went on from ``start`` to ``end`` seconds; ``kind`` chooses its colour."""

    start: float
    end: float
    label: str
    kind: str

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Timeline:
    """The bands of the picture, the length of the run, and the windows in which requests were held."""

    seconds: float
    lanes: tuple[Span, ...]
    states: tuple[Span, ...]
    phases: tuple[Span, ...]
    windows: tuple[Span, ...]
    transactions: tuple[Mapping[str, Any], ...]
    longest: float
    held: float


def timeline(material: Material) -> Timeline | None:
    """The timeline of a run; None when nothing in it has a time."""
    times = [at for event in material.events if (at := moment(event.get("utc"))) is not None]
    begun = moment(material.started) or min(times, default=None)
    if begun is None or not times:
        return None
    seconds = max(max(times) - begun, 1e-3)
    states = tuple(_states(material, begun, seconds))
    windows = tuple(_windows(states))
    transactions = material.block("lifecycle").get("transactions")
    return Timeline(
        seconds=seconds,
        lanes=tuple(_lanes(material, begun)),
        states=states[:MAX_SPANS],
        phases=tuple(_phases(material, begun, seconds))[:MAX_SPANS],
        windows=windows,
        transactions=tuple(transactions) if isinstance(transactions, list) else (),
        longest=max((window.seconds for window in windows), default=0.0),
        held=sum(window.seconds for window in windows),
    )


def _lanes(material: Material, begun: float) -> Iterator[Span]:
    start = 0.0
    for event in material.events:
        at = moment(event.get("utc"))
        if event.get("kind") == "lane" and at is not None:
            yield Span(start, at - begun, str(event.get("lane")), "pass" if event.get("verdict") == "PASS" else "fail")
            start = at - begun


def _states(material: Material, begun: float, seconds: float) -> Iterator[Span]:
    state, since = "", 0.0
    for event in material.events:
        at = moment(event.get("utc"))
        if event.get("kind") == "server_state" and at is not None:
            if state:
                yield Span(since, at - begun, state, _known(state))
            state, since = str(event.get("after")), at - begun
    if state:
        yield Span(since, seconds, state, _known(state))


def _known(state: str) -> str:
    return state if state in STATES else "unknown"


def _windows(states: tuple[Span, ...]) -> Iterator[Span]:
    """Neighbouring states in which requests are held, together."""
    start = end = None
    for span in states:
        if span.kind in HELD:
            start, end = span.start if start is None else start, span.end
        elif start is not None and end is not None:
            yield Span(start, end, "requests held", "paused")
            start = end = None
    if start is not None and end is not None:
        yield Span(start, end, "requests held", "paused")


def _phases(material: Material, begun: float, seconds: float) -> Iterator[Span]:
    phases = material.block("lifecycle").get("phases")
    for phase in phases if isinstance(phases, list) else ():
        at = moment(phase.get("began"))
        took = phase.get("seconds")
        if at is None or phase.get("phase") in ("pause", "resume") or str(phase.get("phase")).startswith("reset"):
            continue
        start = at - begun
        end = start + took if isinstance(took, (int, float)) else seconds
        yield Span(start, end, str(phase.get("phase")), "phase" if took is not None else "fail")
