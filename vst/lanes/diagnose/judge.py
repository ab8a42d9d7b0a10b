"""The checks of lane ``diagnose`` from what was found. Pure functions: a stored diagnosis is judged again by them."""

from __future__ import annotations

from vst.lanes.diagnose.found import FILE, Diagnosis
from vst.verdict import Check, Outcome

SHOWN = 4


def checks(found: Diagnosis, floor: float | None) -> list[Check]:
    """Identity, the transition to B, the smallest set, the reload; what a diagnosis did not come to says so."""
    return [
        arrives("diagnose.identity", found, "identity", "A over A changes nothing", floor),
        to_b(found, floor),
        smallest(found),
        *([reloaded(found, floor)] if found.mode is not None else []),
    ]


def arrives(id: str, found: Diagnosis, what: str, expected: str, floor: float | None) -> Check:
    """Whether the push ``what`` left the server as a cold one is."""
    look = found.last(what)
    if look is None:
        return Check(id, Outcome.INCONCLUSIVE, None, expected, floor, found.stopped or "not reached", FILE)
    if look.equal:
        return Check(id, Outcome.PASS, dict(look.apart), expected, floor, evidence=look.record)
    how = "answers are not finite" if look.apart.get("non_finite") else "positions differ"
    reason = f"{look.apart['differing']} of {look.apart['positions']} {how}, first {look.apart['first']}"
    return Check(id, Outcome.FAIL, dict(look.apart), expected, floor, reason, look.record)


def to_b(found: Diagnosis, floor: float | None) -> Check:
    """``diagnose.to_b``; where identity alone breaks, B was not pushed: nothing could be learnt from it."""
    check = arrives("diagnose.to_b", found, "to_b", "equals the cold reference of B", floor)
    if found.mode == "identity" and found.last("to_b") is None:
        reason = "identity alone already breaks, so B was not pushed"
        return Check(check.id, Outcome.INCONCLUSIVE, None, check.expected, floor, reason, FILE)
    return check


def smallest(found: Diagnosis) -> Check:
    """``diagnose.tensors``: nothing is left behind, or the smallest set of tensors that is."""
    expected = "every tensor's update arrives"
    observed = {"pushes": found.pushes, "mode": found.mode, "parts": list(found.parts), "tensors": list(found.tensors)}
    if found.mode is None:
        if (look := found.last("to_b")) is not None and look.equal:
            return Check("diagnose.tensors", Outcome.PASS, observed, expected, evidence=FILE)
        return Check("diagnose.tensors", Outcome.INCONCLUSIVE, observed, expected, None, found.stopped, FILE)
    if not found.tensors:
        why = found.stopped or "the search did not begin"
        reason = f"something does not arrive, and it was not found what: {why}"
        return Check("diagnose.tensors", Outcome.INCONCLUSIVE, observed, expected, None, reason, FILE)
    return Check("diagnose.tensors", Outcome.FAIL, observed, expected, None, named(found), FILE)


def named(found: Diagnosis) -> str:
    """The set in one sentence."""
    what = f"{', '.join(found.why)}: " if found.why else ""
    items = found.tensors if len(found.tensors) <= SHOWN else found.parts
    shown = ", ".join(items[:SHOWN]) + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")
    begin = "identity alone already breaks; " if found.mode == "identity" else ""
    least = "the smallest set" if found.minimal else f"the smallest set found ({found.stopped})"
    pushes = f"{found.pushes} of {found.limit} pushes"
    size = f"{len(found.tensors)} tensor{'s' * (len(found.tensors) != 1)}, {pushes}"
    return f"{begin}{what}{shown}: {least} that must be left out for the rest to arrive, {size}"


def reloaded(found: Diagnosis, floor: float | None) -> Check:
    """``diagnose.reload``: whether vLLM's own ``reload_weights`` from disk arrives where the push did not."""
    expected = "reload_weights from disk equals a cold start"
    look = found.last("reload")
    if look is None:
        reason = found.reload or "not reached"
        return Check("diagnose.reload", Outcome.INCONCLUSIVE, None, expected, floor, reason, FILE)
    if look.equal:
        return Check("diagnose.reload", Outcome.PASS, dict(look.apart), expected, floor, evidence=look.record)
    same = "the very answers of the push" if found.same_wrong else "and other answers than after the push"
    reason = f"a reload from disk is wrong too, {same}: the fault is the server's, not the sender's"
    return Check("diagnose.reload", Outcome.FAIL, dict(look.apart), expected, floor, reason, look.record)
