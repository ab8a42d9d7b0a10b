"""Plans: moves written down as text, such as ``pause(keep)`` or ``wake(weights)``, and judged whole before the first.

One grammar serves the chains of the configuration (``lifecycle.chain``) and the files of ``lane.plan``::

    pause(MODE[, keep_cache])   abort, wait or keep; keep_cache leaves the caches as they are
    abort                       end the work in flight without a pause
    reset[(running)]            empty the caches; running takes the blocks of frozen requests too
    sleep(LEVEL[, MODE])        level 1 or 2
    wake[(TAG, …)]              weights, kv_cache; all of it without a tag
    push[(ROLE)]                checkpoint (B, the default) or model (A)
    resume
    ask                         take a record and compare it with what the server should hold

A plan file is ``{"format": "vst-plan/1", "steps": [TEXT, …]}``; ``about`` is for whoever reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import ConfigError
from vst.server.states import LEVELS, PAUSE_MODES, TAGS, IllegalMove, Situation, ends, wake_name

FORMAT = "vst-plan/1"
ROLES = ("checkpoint", "model")
TEXT = re.compile(r"([a-z]+)(?:\(([^()]*)\))?")


@dataclass(frozen=True)
class Step:
    """One move with its arguments, as it was written."""

    verb: str
    args: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.verb}({', '.join(self.args)})" if self.args else self.verb

    @property
    def move(self) -> str:
        """The name of the move in the table of states."""
        if self.verb == "sleep":
            return f"sleep({self.args[0]})"
        return wake_name(self.args) if self.verb == "wake" else self.verb


@dataclass(frozen=True)
class Shape:
    """What a verb takes: choices for each place, ``least`` of which must be given."""

    places: tuple[tuple[str, ...], ...] = ()
    least: int = 0


SHAPES: Mapping[str, Shape] = {
    "pause": Shape((PAUSE_MODES, ("keep_cache",)), 1),
    "abort": Shape(),
    "reset": Shape((("running",),)),
    "sleep": Shape((tuple(map(str, LEVELS)), PAUSE_MODES), 1),
    "wake": Shape((TAGS, TAGS)),
    "push": Shape((ROLES,)),
    "resume": Shape(),
    "ask": Shape(),
}


def parse(text: Any) -> Step:
    """A step from its text; ConfigError says what is understood instead."""
    found = TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or found[1] not in SHAPES:
        raise ConfigError(f"{text!r} is no step: expected one of {', '.join(SHAPES)}, with arguments as in pause(keep)")
    step = Step(found[1], tuple(part.strip() for part in found[2].split(",")) if found[2] else ())
    if problem := _problem(step, SHAPES[step.verb]):
        raise ConfigError(f"step {text!r}: {problem}")
    return step


def _problem(step: Step, shape: Shape) -> str | None:
    if not shape.least <= len(step.args) <= len(shape.places):
        return f"takes {shape.least} to {len(shape.places)} arguments, found {len(step.args)}"
    for given, choices in zip(step.args, shape.places, strict=False):
        if given not in choices:
            return f"{given!r} is not one of {', '.join(choices)}"
    return "names a tag twice" if len(set(step.args)) < len(step.args) else None


def parse_all(texts: Iterable[Any]) -> tuple[Step, ...]:
    return tuple(parse(text) for text in texts)


def outcomes(steps: Sequence[Step], start: Situation = Situation.SERVING) -> set[Situation]:
    """Every situation that the steps may end in from ``start``.

    IllegalMove names the first step that is not legal in each situation that may have been reached by then.
    """
    reached = {start}
    for number, step in enumerate(steps, 1):
        after: set[Situation] = set()
        for situation in sorted(reached):
            try:
                after.update(ends(step.move, situation))
            except IllegalMove as error:
                raise IllegalMove(f"step {number} of {len(steps)}, {step}: {error}") from error
        reached = after
    return reached


def read_plan(path: Path) -> tuple[Step, ...]:
    """The steps of a plan file; ConfigError when it is none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a plan: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("steps"), list):
        raise ConfigError(f'{path} is no plan: expected {{"format": "{FORMAT}", "steps": [TEXT, …]}}')
    return parse_all(content["steps"])


def plan_json(steps: Iterable[Step], about: Any = None) -> dict[str, Any]:
    """The content of a plan file."""
    return {"format": FORMAT, "steps": [str(step) for step in steps], "about": about}
