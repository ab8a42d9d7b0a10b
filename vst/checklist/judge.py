"""Each row from the evidence of all runs: never ticked without it; where runs contradict each other the worse
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from vst.checklist.evidence import UNSEALED, RunEvidence, Source
from vst.checklist.rows import ROWS, Row
from vst.verdict import CAUSES, Outcome

BY_CHOICE = "declared by lane.controls"
"""How the reason begins where a control was not asked for: that says nothing about the model."""


class State(str, Enum):
    """How a row stands."""

    DONE = "done"
    PART = "in part"
    OPEN = "open"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    REFUSED = "refused"

    @property
    def tone(self) -> str:
        """The class that gives a page its colour."""
        return {"done": "pass", "failed": "fail", "refused": "fail", "in part": "part", "open": "open"}.get(
            self.value, ""
        )


@dataclass(frozen=True)
class Judged:
    """A row, how it stands and why, and the findings that say so."""

    row: Row
    state: State
    why: str
    sources: tuple[Source, ...]
    contradictions: tuple[str, ...] = ()


def judge(runs: Sequence[RunEvidence]) -> list[Judged]:
    """All rows. One broken bundle refuses every tick: what it may have held against a row is not known."""
    broken = [run for run in runs if run.broken]
    judged = [_provenance(row, runs) if not row.needs else _row(row, runs) for row in ROWS]
    if not broken:
        return judged
    why = f"{broken[0].name} does not verify: {broken[0].broken}"
    ticked = (State.DONE, State.PART, State.NOT_APPLICABLE)
    return [
        Judged(one.row, State.REFUSED, why, one.sources, one.contradictions) if one.state in ticked else one
        for one in judged
    ]


def _row(row: Row, runs: Sequence[RunEvidence]) -> Judged:
    everything = [source for run in runs for source in run.sources]
    needed = {need: _matching(everything, need) for need in row.needs}
    patterns = (*row.needs, *row.besides)
    sources = [one for pattern in patterns for one in _matching(everything, pattern)]
    contradictions = tuple(_contradictions(sources))
    reason = next((run.facts[row.unless] for run in runs if row.unless in run.facts), "") if row.unless else ""
    if reason and all(row.unless in run.facts for run in runs if run.sources and _says(run, row.unless)):
        return Judged(row, State.NOT_APPLICABLE, reason, ())
    state, why = _stands(needed, sources)
    return Judged(row, state, why, tuple(_telling(sources)), contradictions)


def _says(run: RunEvidence, fact: str) -> bool:
    """Whether a run could have said this of itself: one that read the files, or started a server."""
    seen = {source.check for source in run.sources}
    return "files.config" in seen if fact in ("untied", "unscaled") else "server.alive" in seen


def _stands(needed: dict[str, list[Source]], sources: Sequence[Source]) -> tuple[State, str]:
    bad = _worst(sources)
    if bad is not None:
        state = State.FAILED if bad.outcome is Outcome.FAIL else State.OPEN
        return state, f"{bad.check} {bad.outcome.value} in {bad.run}: {bad.reason}"
    missing = [need for need, found in needed.items() if not found]
    if len(missing) == len(needed):
        return State.OPEN, f"no run looked at {', '.join(missing)}"
    if missing:
        return State.OPEN, f"not looked at: {', '.join(missing)}"
    if chosen := [one for one in declared_away(sources) if one.reason.startswith(BY_CHOICE)]:
        return State.OPEN, f"left out by choice: {', '.join(one.check for one in chosen)} ({chosen[0].reason})"
    asked = [one for found in needed.values() for one in found]
    away = "; ".join(f"{one.check}: {one.reason}" for one in declared_away(asked))
    if not any(one.outcome is Outcome.PASS for one in asked):
        return State.NOT_APPLICABLE, away
    return (State.PART, f"declared not applicable and so not shown: {away}") if away else (State.DONE, "")


def declared_away(sources: Sequence[Source]) -> list[Source]:
    """For every check that no run showed to pass, the declaration that took it away."""
    shown = {one.check for one in sources if one.outcome is Outcome.PASS}
    last = {one.check: one for one in sources if one.outcome is Outcome.NOT_APPLICABLE and one.check not in shown}
    return list(last.values())


def _worst(sources: Sequence[Source]) -> Source | None:
    for cause in CAUSES:
        for one in sources:
            if one.outcome is cause:
                return one
    return None


def _matching(sources: Sequence[Source], pattern: str) -> list[Source]:
    return [one for one in sources if fnmatchcase(one.check, pattern)]


def _contradictions(sources: Sequence[Source]) -> list[str]:
    """Checks that one run showed to hold and another not."""
    found = []
    for check in dict.fromkeys(one.check for one in sources):
        good = next((one for one in sources if one.check == check and one.outcome is Outcome.PASS), None)
        bad = _worst([one for one in sources if one.check == check])
        if good is not None and bad is not None:
            found.append(f"{check} passes in {good.run} and is {bad.outcome.value} in {bad.run}: the worse counts")
    return found


def _telling(sources: Sequence[Source]) -> list[Source]:
    """The findings that a reader needs: everything that is not a plain pass, and one pass for each check."""
    seen: set[str] = set()
    told = []
    for one in sources:
        if one.outcome is not Outcome.PASS or one.check not in seen:
            told.append(one)
        if one.outcome is Outcome.PASS:
            seen.add(one.check)
    return told


def _provenance(row: Row, runs: Sequence[RunEvidence]) -> Judged:
    broken = [run for run in runs if run.broken]
    if broken:
        return Judged(row, State.FAILED, f"{broken[0].name}: {broken[0].broken}", ())
    incomplete = [run for run in runs if run.incomplete]
    sound = [run for run in runs if run.holds]
    if not sound:
        unsealed = any(run.sources for run in runs)
        why = UNSEALED if unsealed else "; ".join(f"{run.name}: {run.incomplete}" for run in runs) or "no run was given"
        return Judged(row, State.OPEN, why, ())
    why = "; ".join([
        *(f"{run.name}: {run.holds}" for run in sound[:3]), *([f"and {len(sound) - 3} more"] if len(sound) > 3 else []),
        *(f"{run.name} is not counted: {run.incomplete}" for run in incomplete),
    ])  # fmt: skip
    return Judged(row, State.PART if incomplete else State.DONE, why, ())
