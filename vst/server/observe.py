"""What a server shows of its state: two flags and the sleep gauge, read together and judged against its situation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vst.server.client import ControlPlane, HttpFailure
from vst.server.states import LOOKS, Situation

GAUGE = re.compile(
    r'^vllm:engine_sleep_state\{[^}]*sleep_state="(awake|weights_offloaded|discard_all)"[^}]*\}\s+([0-9.eE+-]+)',
    re.MULTILINE,
)
LEVEL_OF = {"awake": 0, "weights_offloaded": 1, "discard_all": 2}


@dataclass(frozen=True)
class Observation:
    """The flags as booleans and the gauge as a level: 0 awake, 1, 2, -1 not awake at no level; None where nothing says.

    ``levels`` are those of all engines behind the address; engines that disagree give no ``level``.
    """

    paused: bool | None
    sleeping: bool | None
    levels: tuple[int, ...]

    @property
    def level(self) -> int | None:
        return self.levels[0] if len(set(self.levels)) == 1 else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "levels": list(self.levels), "level": self.level}


def observe(control: ControlPlane) -> Observation:
    """Ask for the flags and the gauge; TransportError when the server does not answer."""
    return Observation(
        read_flag(control, "/is_paused", "is_paused"),
        read_flag(control, "/is_sleeping", "is_sleeping"),
        read_levels(_get(control, "/metrics")),
    )


def read_flag(control: ControlPlane, path: str, name: str) -> bool | None:
    """One flag; None for a route that is not there and for an answer that is no flag."""
    answer = _get(control, path)
    value = answer.get(name) if isinstance(answer, Mapping) else None
    return value if isinstance(value, bool) else None


def _get(control: ControlPlane, path: str) -> Any:
    try:
        return control.get(path)
    except HttpFailure as failure:
        if failure.status in (404, 405):
            return None
        raise


def read_levels(metrics: Any) -> tuple[int, ...]:
    """The sleep level of each engine from the gauge; empty without a gauge."""
    found = [(state, float(value)) for state, value in GAUGE.findall(metrics if isinstance(metrics, str) else "")]
    each = {state: [value for name, value in found if name == state] for state in LEVEL_OF}
    engines = zip(each["awake"], each["weights_offloaded"], each["discard_all"], strict=False)
    return tuple(0 if awake else 1 if offloaded else 2 if discarded else -1 for awake, offloaded, discarded in engines)


def mismatches(situation: Situation, seen: Observation) -> list[str]:
    """Everything that the server shows and that does not fit its situation; also what it does not show."""
    looks = LOOKS[situation]
    wanted = {"/is_paused": looks.paused, "/is_sleeping": looks.sleeping, "the sleep gauge": looks.level}
    found = {"/is_paused": seen.paused, "/is_sleeping": seen.sleeping, "the sleep gauge": _shown(seen)}
    return [
        f"{name} says {found[name]}, expected {expected} for a server that is {situation.value}"
        for name, expected in wanted.items()
        if expected is not None and found[name] != expected
    ]


def _shown(seen: Observation) -> Any:
    """The gauge's level, all levels where the engines disagree, None without a gauge."""
    return seen.level if seen.level is not None or not seen.levels else list(seen.levels)
