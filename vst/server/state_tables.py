"""The tables of states and moves as the README shows them."""

from __future__ import annotations

from collections.abc import Iterable

from vst.server.states import LOOKS, REFUSALS, TRANSITIONS, Looks, Situation, Transition

BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"
NOT_JUDGED = "not judged"


def tables() -> str:
    """Three Markdown tables: what each state looks like, the legal moves, and what to do instead of refused ones."""
    looks = [_look(situation, looks) for situation, looks in LOOKS.items()]
    moves = [_move(transition) for transition in TRANSITIONS]
    refusals = [(move, situation.value, why) for (move, situation), why in REFUSALS.items()]
    return "\n\n".join([
        _table(("state", "`/is_paused`", "`/is_sleeping`", "gauge", "scheduler", "memory", "output"), looks),
        _table(("move", "from", "demands", "sent", "to", "observed"), moves),
        _table(("refused", "while", "because"), refusals),
    ])  # fmt: skip


def _look(situation: Situation, looks: Looks) -> tuple[str, ...]:
    level = NOT_JUDGED if looks.level is None else "awake" if looks.level == 0 else f"level {looks.level}"
    flags = (_flag(looks.paused), _flag(looks.sleeping))
    return (situation.value, *flags, level, looks.scheduler, looks.memory, looks.output)


def _flag(value: bool | None) -> str:
    return NOT_JUDGED if value is None else str(value).lower()


def _move(transition: Transition) -> tuple[str, ...]:
    before = "; ".join(situation.value for situation in transition.before)
    after = "; ".join(situation.value for situation in transition.after) or "the same"
    return (f"`{transition.move}`", before, transition.demands, transition.request, after, transition.observed)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def between_marks(text: str) -> str:
    """What stands between the marks in the README; ValueError when they are not there."""
    _, begin, rest = text.partition(BEGIN)
    inside, end, _ = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{BEGIN} … {END} is not in the text")
    return inside.strip()
