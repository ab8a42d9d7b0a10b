"""Lane L2: A over A. Nothing may move."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vst.errors import VstError
from vst.lanes.asking import take_each
from vst.lanes.drafts import push_with_draft
from vst.lanes.fleet import Replica, named
from vst.lanes.same_server import same_check
from vst.lanes.seats import arrived, seat_checks
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, answers_check, completed_check
from vst.oracle.compare import Difference, changed, difference
from vst.server.client import HttpFailure
from vst.transfer.plan import Sent
from vst.verdict import Check, LaneVerdict, Outcome

EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass
class Found:
    """What the lane has seen so far."""

    sent: list[Sent] = field(default_factory=list)
    moved: list[Difference] = field(default_factory=list)
    seats: list[dict[str, Any]] = field(default_factory=list)
    before: Mapping[str, str] | None = None
    after: Mapping[str, str] | None = None
    failure: TransactionFailed | None = None
    broken: VstError | None = None


def run_identity(session: Session) -> LaneVerdict:
    """Push A over A ``lane.identities`` times and compare each record with the first."""
    found = Found()
    try:
        _pushes(session, found)
    except TransactionFailed as failure:
        found.failure = failure
    except VstError as error:
        found.broken = error
    capabilities = session.conf.server.capabilities
    return LaneVerdict(
        "L2",
        (
            completed_check(found.sent, found.failure),
            answers_check(found.broken),
            record_check(found.moved, session.conf.lane.identities, session.floor),
            *seat_checks(session, found.seats, session.conf.lane.identities),
            weights_check(found.before, found.after, capabilities.weight_digests, capabilities.reason),
            same_check(session),
        ),
    )


def _pushes(session: Session, found: Found) -> None:
    found.before = weight_digests(session)
    for number in range(1, session.conf.lane.identities + 1):
        session.progress.say(f"identity {number} of {session.conf.lane.identities}: A over A")
        found.sent += push_with_draft(session, Push("model", purpose="identity"))
        first, name = session.records[0], f"identity-{number}"
        records = take_each(session, "A", name)
        found.moved.append(difference(records[0], first, session.need("floor")))
        found.seats += arrived(session, records, name, first, first)
        if not all(one["equal"] for one in found.seats):
            return
        session.need("fleet").each(lambda lifecycle: lifecycle.verify())
    found.after = weight_digests(session)


def record_check(moved: list[Difference], wanted: int, floor: float | None) -> Check:
    """``identity.record``: every identity push left the answers as they were."""
    observed = [found.to_json() for found in moved]
    bad = next((found for found in moved if not found.equal), None)
    expected = f"{wanted} records equal to the first of A"
    if bad is not None:
        reason = f"pushing A over A {changed(bad)}"
        return Check(
            "identity.record", Outcome.FAIL, observed, expected, floor, reason, f"record-identity-{len(moved)}.json"
        )
    if len(moved) < wanted:
        reason = f"only {len(moved)} of {wanted} identity records could be taken"
        return Check("identity.record", Outcome.INCONCLUSIVE, observed, expected, floor, reason)
    return Check("identity.record", Outcome.PASS, observed, expected, floor)


def weight_digests(session: Session) -> Mapping[str, str] | None:
    """The servers' own digests of their parameters; None where one of them offers none."""
    found = [(one.server.title, _digests(one)) for one in session.need("fleet").replicas]
    if any(digests is None for _, digests in found):
        return None
    return {f"{title} {key}".strip(): value for title, digests in found for key, value in (digests or {}).items()}


def _digests(replica: Replica) -> Mapping[str, str] | None:
    try:
        answer: Any = replica.server.control.post("/weight_checker", {"action": "checksum"})
    except HttpFailure as failure:
        if failure.status in (404, 405):
            return None
        raise named(failure, replica.server.title) from failure
    digests = answer.get("checksums") if isinstance(answer, Mapping) else None
    return digests if isinstance(digests, Mapping) else None


def _says_something(digest: Any) -> bool:
    return isinstance(digest, str) and digest.removeprefix("sha256:") not in ("", EMPTY)


def weights_check(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None, declared: bool, reason: str | None
) -> Check:
    """``identity.weights``: the server's digests did not move, and most of them say something.

    A digest of no bytes says nothing. Declared not to be offered, the check is not applicable unless a telling digest
    moved.
    """
    telling = {key for key, value in (before or {}).items() if _says_something(value)}
    moved = sorted(key for key in telling if after is not None and after.get(key) != (before or {})[key])
    share = f"{len(telling)} of {len(before or {})} digests say something"
    expected = "the same digests, most of them telling"
    if moved:
        return Check(
            "identity.weights", Outcome.FAIL, share, expected, reason=f"digests moved under A over A: {moved[:5]}"
        )
    if not declared:
        why = f"declared by server.capabilities.weight_digests=false: {reason or 'no reason given'}"
        return Check("identity.weights", Outcome.NOT_APPLICABLE, share, expected, reason=why)
    if before is None or after is None:
        why = "the server gave no weight digests; declare server.capabilities.weight_digests=false with a reason"
        return Check("identity.weights", Outcome.INCONCLUSIVE, share, expected, reason=why)
    if len(telling) * 2 <= len(before):
        return Check("identity.weights", Outcome.INCONCLUSIVE, share, expected, reason=f"only {share}: no proof")
    return Check("identity.weights", Outcome.PASS, share, expected)
