"""Judging one answer: to which state it belongs, or what is wrong with it. Pure functions.

The names of what can be wrong are those of ``BAD``; each says what a reader should look for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vst.load.expected import Expected, Path, contradiction, near_tie, parting
from vst.load.holdings import History
from vst.load.seen import Seen

GOOD = ("whole", "tie", "refused", "aborted", "spanning")
"""An answer of one state; one that parts from it at a near tie and is not judged beyond; one that was refused or cut
short as the policy declares; one that crossed an update, which the policy lets be anything from there on."""

BAD = (
    "lost",
    "error",
    "refused_undeclared",
    "aborted_undeclared",
    "while_paused",
    "contradiction",
    "truncated",
    "overlong",
    "stale",
    "mixed",
    "doubled",
    "dropped",
    "foreign",
)
"""No answer; one that is no completion; refused or aborted against the policy; tokens that came while nothing could
move; an answer that contradicts itself; one cut short, or longer than asked; whole, but of a state that the server did
not hold then; begun as one state and ended as another; tokens twice; tokens missing; none of all these."""


@dataclass(frozen=True)
class Policy:
    """What an answer may be. ``refused`` are statuses with which a request may be turned away during a pause,
    ``aborted`` lets an answer end early with the reason ``abort`` during one, ``spanning`` lets an answer that crossed
    an update go on as anything. ``settle_s``: how long after the acknowledgement of a pause a token may still be on its
    way, in seconds.
    """

    refused: tuple[int, ...]
    aborted: bool
    spanning: bool
    settle_s: float


@dataclass(frozen=True)
class Finding:
    """The judgement on one answer; ``claim`` is the state that it belongs to, or in part."""

    number: int
    kind: str
    claim: str | None
    text: str = ""

    @property
    def good(self) -> bool:
        return self.kind in GOOD


def find(one: Seen, expected: Mapping[str, Expected], told: History, policy: Policy) -> Finding:
    """Judge one answer; every kind of fault that can be told from its form goes before what its tokens say."""
    pause = told.paused(one.sent, one.ended)
    if one.error is not None or not one.closed:
        return _broken(one, pause is not None, policy)
    if still := _moved_while_paused(one, told, policy):
        return Finding(one.number, "while_paused", None, still)
    if fault := contradiction(one):
        return Finding(one.number, "contradiction", None, fault)
    claims = told.claims(one.sent, one.ended)
    found = _belongs(one, [expected[claim] for claim in claims])
    if found is not None and found.kind == "aborted" and not (policy.aborted and pause is not None):
        return Finding(one.number, "aborted_undeclared", found.claim, f"aborted after {len(one.tokens)} tokens")
    if found is not None:
        return found
    crossed = told.crossed(one.sent, one.ended) if policy.spanning else None
    return _fault(one, expected, claims, crossed)


def _broken(one: Seen, paused: bool, policy: Policy) -> Finding:
    if one.status is not None and not 200 <= one.status < 300:
        declared = one.status in policy.refused and paused
        kind = "refused" if declared else "refused_undeclared" if one.status == 503 else "error"
        return Finding(one.number, kind, None, one.error or f"answered {one.status}")
    if one.status is None or not one.closed:
        return Finding(one.number, "lost", None, one.error or f"not closed after {len(one.tokens)} tokens")
    return Finding(one.number, "error", None, one.error or "no answer")


def _moved_while_paused(one: Seen, told: History, policy: Policy) -> str | None:
    """What came at a time when the server was paused and had settled."""
    came = one.arrivals or (one.ended,)
    for pause in told.pauses:
        late = [at for at in came if pause.still + policy.settle_s < at < pause.moving]
        if late:
            after = late[0] - pause.still
            return f"{len(late)} of its parts came while the server was paused, the first {after:.3f} s into the pause"
    return None


def _belongs(one: Seen, allowed: Sequence[Expected]) -> Finding | None:
    """The finding on an answer of an allowed state, whole, parted at a near tie, or aborted; None for any other."""
    for state in allowed:
        path = state.paths[one.prompt]
        at = parting(one.tokens, path)
        tie = at < min(len(one.tokens), len(path.tokens)) and near_tie(path, at, one.tokens[at], state.window)
        length = len(one.tokens) == len(path.tokens)
        if tie and length and one.finish == "length":
            return Finding(one.number, "tie", state.claim, f"parts at a near tie at position {at}")
        if at == len(one.tokens) or tie:
            if length and one.finish == "length":
                return Finding(one.number, "whole", state.claim)
            # vLLM ends a stream that was aborted before its first token without any finish reason.
            if one.finish == "abort" or not (one.tokens or one.finish):
                return Finding(one.number, "aborted", state.claim, f"aborted after {len(one.tokens)} tokens")
    return None


def _fault(one: Seen, expected: Mapping[str, Expected], claims: Sequence[str], crossed: float | None) -> Finding:
    """Name what is wrong with an answer of no allowed state, seen from the state that it shares the longest start
    with."""
    wanted = [expected[claim] for claim in claims]
    nearest = max(wanted, key=lambda state: parting(one.tokens, state.paths[one.prompt]))
    path = nearest.paths[one.prompt]
    at = parting(one.tokens, path)
    shown = f"{len(one.tokens)} tokens, the first {at} are those of {nearest.claim}"
    if other := _other(one, expected, claims):
        return Finding(one.number, "stale", other, f"is {other}'s, when the server held {' or '.join(claims)}")
    if at == len(one.tokens):
        return Finding(one.number, "truncated", nearest.claim, f"{shown}; expected {len(path.tokens)}")
    if crossed is not None and _spans(one, expected[claims[0]].paths[one.prompt], crossed):
        return Finding(one.number, "spanning", claims[0], f"crossed an update; {shown}")
    kind, text = _shape(one, path, at, expected)
    return Finding(one.number, kind, nearest.claim, f"{shown}; {text}")


def _spans(one: Seen, path: Path, crossed: float) -> bool:
    """Whether a whole answer began as ``path``, the state before the update, as far as it came before that."""
    came = sum(at < crossed for at in one.arrivals)
    whole = len(one.tokens) == len(path.tokens) and one.finish == "length"
    return whole and parting(one.tokens, path) >= max(came, 1)


def _other(one: Seen, expected: Mapping[str, Expected], claims: Sequence[str]) -> str | None:
    """A state that the answer wholly belongs to and that the server did not hold."""
    others = (state for claim, state in expected.items() if claim not in claims)
    return next((state.claim for state in others if one.tokens == state.paths[one.prompt].tokens), None)


def _shape(one: Seen, path: Path, at: int, expected: Mapping[str, Expected]) -> tuple[str, str]:
    """How tokens that part from ``path`` at ``at`` go on."""
    for state in expected.values():
        tail = state.paths[one.prompt].tokens[at : len(one.tokens)]
        if at > 0 and state.paths[one.prompt] is not path and one.tokens[at:] == tail:
            return "mixed", f"the rest is that of {state.claim} from position {at}"
    for count in range(1, len(path.tokens)):
        if count <= at and one.tokens[at:] == path.tokens[at - count : len(one.tokens) - count]:
            return "doubled", f"{count} token(s) came twice before position {at}"
        if one.tokens[at:] and one.tokens[at:] == path.tokens[at + count : len(one.tokens) + count]:
            return "dropped", f"{count} token(s) are missing at position {at}"
    if at == len(path.tokens):
        return "overlong", f"expected {len(path.tokens)}"
    observed, due = one.tokens[at], path.tokens[at]
    return ("mixed" if at else "foreign"), f"position {at}: observed {observed}, expected {due}"
