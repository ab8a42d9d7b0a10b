"""The longest push of a run, stage by stage: what read, hash, broadcast and server did beside one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vst.provenance.encoding import moment
from vst.report.material import Material

TITLES = {
    "read": "read",
    "hash": "hash",
    "stage": "stage on the GPU",
    "broadcast": "broadcast",
    "server_update": "server receives and loads",
}
INNER = {"push.start": "start", "push.finish": "finish"}


@dataclass(frozen=True)
class Bar:
    """What went on from ``start`` to ``end`` seconds after the first of them; ``busy`` is summed over threads."""

    title: str
    kind: str
    start: float
    end: float
    busy: float
    bytes: int | None = None

    @property
    def rate(self) -> float | None:
        """Bytes for each busy second."""
        return self.bytes / self.busy if self.bytes and self.busy > 0 else None


@dataclass(frozen=True)
class PushTimes:
    """One push; ``overlap`` is how many of its stages were at work at a time, ``held`` from the pause to the resume."""

    number: int
    seconds: float
    bars: tuple[Bar, ...]
    overlap: float | None
    held: float | None
    memory: Mapping[str, Any]


def longest_push(material: Material) -> PushTimes | None:
    """The finished push that took longest and told its stages; None where none did."""
    found = (_push(material, one) for one in _items(material, "transactions") if one.get("outcome") == "finished")
    return max((one for one in found if one is not None), key=lambda one: one.seconds, default=None)


def _items(material: Material, key: str) -> list[Mapping[str, Any]]:
    items = material.block("lifecycle").get(key)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _push(material: Material, transaction: Mapping[str, Any]) -> PushTimes | None:
    number = transaction.get("number")
    phases = {
        str(phase.get("phase")): phase
        for phase in _items(material, "phases")
        if phase.get("transaction") == number and _span(phase) is not None
    }
    told = _told(material, transaction)
    begun = _span(phases.get("push.start", {}))
    if told is None or begun is None:
        return None
    pause, resume = _span(phases.get("pause", {})), _span(phases.get("resume", {}))
    held = (pause[0], resume[1]) if pause and resume else None
    zero = held[0] if held else begun[0]
    stages = list(_stages(told, begun[0] - zero))
    bars = [Bar("requests held", "paused", 0.0, held[1] - zero, held[1] - held[0])] if held else []
    bars += [
        Bar(title, "updating", span[0] - zero, span[1] - zero, span[1] - span[0])
        for key, title in INNER.items()
        if (span := _span(phases.get(key, {})))
    ]
    wall = max(bar.end for bar in stages) - min(bar.start for bar in stages)
    return PushTimes(
        number=int(number or 0),
        seconds=float(told.get("seconds") or 0.0),
        bars=tuple([*bars[:-1], *stages, *bars[-1:]]),
        overlap=sum(bar.busy for bar in stages) / wall if wall > 0 else None,
        held=held[1] - held[0] if held else None,
        memory=told["memory"] if isinstance(told.get("memory"), Mapping) else {},
    )


def _told(material: Material, transaction: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The publisher's last word on a push, which came while its transaction was open."""
    span = _span(transaction)
    if span is None:
        return None
    for event in material.events:
        at = moment(event.get("utc"))
        told = event.get("kind") == "publisher_done" and event.get("stages")
        # Times of day are rounded.
        if told and at is not None and span[0] - 1e-3 <= at <= span[1] + 1e-3:
            return event
    return None


def _span(item: Mapping[str, Any]) -> tuple[float, float] | None:
    begun, took = moment(item.get("began")), item.get("seconds")
    return (begun, begun + took) if begun is not None and isinstance(took, (int, float)) else None


def _stages(told: Mapping[str, Any], offset: float) -> Iterator[Bar]:
    for one in told["stages"]:
        title = TITLES.get(str(one.get("stage")), str(one.get("stage")))
        first, last, busy = (float(one.get(key) or 0.0) for key in ("first_s", "last_s", "busy_s"))
        yield Bar(title, "phase", offset + first, offset + last, busy, int(one.get("bytes") or 0))
