"""The draft of a server that decodes speculatively: it is updated after its model, and judged by what it gets accepted.

A model with a stale draft answers right and is slow; its log-probabilities say nothing about it. So the tokens that the
draft proposed and had accepted, over the same questions, have to be those of the cold server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vst.lanes.session import Session
from vst.lanes.transaction import Push, transact
from vst.server.speculation import WEIGHTLESS, Drafted, method
from vst.transfer.plan import Sent
from vst.verdict import Check, Outcome

Transact = Callable[[Session, Push], Sent]

ID = "draft.acceptance"
COLD = "reference"
"""The state of the cold B, by the name of its record."""

EXPECTED = "the draft has as many tokens accepted as that of a cold server"


def draft_role(session: Session, role: str) -> str | None:
    """The manifest that is pushed into the draft after ``role``; None for a server whose draft has no weights."""
    if session.conf.transfer.mtp:
        return role
    return f"draft-{role}" if f"draft-{role}" in session.manifests else None


def push_with_draft(session: Session, push: Push, how: Transact = transact) -> list[Sent]:
    """The transaction, and after it that of the draft where the server has one."""
    return [how(session, push), *push_draft(session, push, how)]


def push_draft(session: Session, push: Push, how: Transact = transact) -> list[Sent]:
    """The draft's own transaction, which belongs to ``push``.

    Layers of the model's own take the same tensors: the server shares some of them (embedding, head) with the model,
    and a whole B would undo a control.
    """
    role = draft_role(session, push.role)
    if role is None:
        return []
    session.progress.say(f"the draft of {push.role}")
    same = push if session.conf.transfer.mtp else Push(role)
    return [how(session, replace(same, purpose=f"{push.purpose}.draft", draft=True))]


@dataclass(frozen=True)
class Arrival:
    """What the draft did in one state (``found``), and what the state that it must equal did."""

    state: str
    found: Drafted | None
    expected: Drafted | None

    def to_json(self) -> dict[str, Any]:
        sides = {"found": self.found, "expected": self.expected}
        return {"state": self.state, **{key: side.to_json() if side else None for key, side in sides.items()}}


def drafting_check(
    session: Session, arrivals: Sequence[Arrival], wanted: int, repeats: Sequence[Drafted | None], stale: Drafted | None
) -> list[Check]:
    """``draft.acceptance``, for a server that decodes speculatively; nothing for another one."""
    how = method(session.need("facts").config)
    if how is None:
        return []
    observed = {
        "method": how,
        "declared": draft_role(session, "model") is not None,
        "wanted": wanted,
        "arrivals": [one.to_json() for one in arrivals],
        "repeats": [one.to_json() if one else None for one in repeats],
        "stale": stale.to_json() if stale else None,
    }
    return [acceptance_check(observed, session.conf.eval.draft_margin)]


def acceptance_check(observed: Mapping[str, Any], margin: float) -> Check:
    """``draft.acceptance`` from what was counted.

    Where the counts repeat exactly they must be equal; else the shares may differ by ``margin``. Without a draft that
    is declared, with nothing proposed, or where a draft that was left stale counted alike, it is inconclusive.
    """
    outcome, reason = _judged(observed, margin)
    return Check(ID, outcome, dict(observed), EXPECTED, margin, reason)


def counted(session: Session, name: str, cold: str) -> dict[str, Any] | None:
    """What was drafted for the record ``name`` and by a cold server, and how far shares may lie apart by themselves.

    None where the model does not draft with layers of its own, or nobody counted.
    """
    found, expected = session.drafted.get(name), session.drafted.get(cold)
    if not session.conf.transfer.mtp or found is None or expected is None:
        return None
    repeats = [session.drafted.get(f"model-{number}") for number in range(1, session.conf.oracle.repeats + 1)]
    margin = 0.0 if _exact([one.to_json() if one else None for one in repeats]) else session.conf.eval.draft_margin
    return {"found": found.to_json(), "expected": expected.to_json(), "margin": margin}


def tells_apart(drafted: Mapping[str, Any] | None) -> bool:
    """Whether what ``counted`` gave shows another draft than the cold server's."""
    if drafted is None or not drafted["found"]["proposed"] or not drafted["expected"]["proposed"]:
        return False
    exact = drafted["margin"] == 0
    return not _alike(drafted["found"], drafted["expected"], exact, drafted["margin"])


def _exact(repeats: Sequence[Mapping[str, Any] | None]) -> bool:
    counts = [_counts(one) for one in repeats]
    return len(counts) > 1 and None not in counts and len(set(counts)) == 1


def _judged(observed: Mapping[str, Any], margin: float) -> tuple[Outcome, str]:
    weights = observed["method"] not in WEIGHTLESS
    if weights and not observed["declared"]:
        why = f"the server drafts by {observed['method']} and no draft was declared, so nobody updates it"
        return Outcome.INCONCLUSIVE, f"{why}: use model=draftmodel, or transfer.mtp=true for layers of the model itself"
    exact = _exact(observed["repeats"])
    for one in observed["arrivals"]:
        apart = _apart(one, exact, margin)
        if apart is not None:
            return apart
    if len(observed["arrivals"]) < observed["wanted"]:
        return Outcome.INCONCLUSIVE, "a draft was not judged in every state: an earlier step did not hold"
    return _stale(observed, exact, margin) if weights and observed["stale"] else (Outcome.PASS, "")


def _counts(side: Mapping[str, Any] | None) -> tuple[int, int] | None:
    return (side["proposed"], side["accepted"]) if side else None


def _apart(one: Mapping[str, Any], exact: bool, margin: float) -> tuple[Outcome, str] | None:
    found, expected = one["found"], one["expected"]
    if not found or not expected or not found["proposed"] or not expected["proposed"]:
        return Outcome.INCONCLUSIVE, f"{one['state']}: no token was drafted, or nobody counted: {found} / {expected}"
    if _alike(found, expected, exact, margin):
        return None
    told = " and ".join(f"{side['accepted']} of {side['proposed']}" for side in (found, expected))
    return Outcome.FAIL, f"{one['state']}: accepted / drafted are {told} where equal is expected: the draft is stale"


def _alike(found: Mapping[str, Any], expected: Mapping[str, Any], exact: bool, margin: float) -> bool:
    if exact:
        return _counts(found) == _counts(expected)
    return bool(abs(found["accepted"] / found["proposed"] - expected["accepted"] / expected["proposed"]) <= margin)


def _stale(observed: Mapping[str, Any], exact: bool, margin: float) -> tuple[Outcome, str]:
    """A draft that was left behind on purpose must have been seen, or the others prove nothing."""
    fresh = observed["arrivals"][0]["expected"]
    if not observed["stale"]["proposed"] or _alike(observed["stale"], fresh, exact, margin):
        why = "before the draft was updated as many tokens were accepted as after it"
        return Outcome.INCONCLUSIVE, f"{why}: a stale draft could not have been seen with these questions"
    return Outcome.PASS, ""
