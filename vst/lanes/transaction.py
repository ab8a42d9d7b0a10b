"""One transaction and the moves around it: pause, reset, push, reset, resume, each only after the one before it held.

Nothing here is in a ``finally``: after a failure the server is tainted, and neither finish nor resume follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vst.checkpoint.manifest import Manifest
from vst.errors import TransportError, VstError
from vst.lanes.fleet import Fleet
from vst.lanes.same_server import RestartedServer, expect_same_instances, note_labels
from vst.lanes.sending import join, leave
from vst.lanes.session import Session
from vst.provenance.rundir import utc_now
from vst.provenance.timeline import Phase, Timeline
from vst.server.lifecycle import Lifecycle
from vst.server.states import IllegalMove
from vst.transfer.plan import PushPlan, Sent
from vst.transfer.publisher import PublisherFailed
from vst.transfer.wire import cut
from vst.verdict import Check, Outcome

FORMAT = "vst-weight-update/1"
CLAIMS = {"checkpoint": "B", "model": "A"}
"""What a record or a load calls the content of each role."""


@dataclass(frozen=True)
class Push:
    """What to push: the role whose manifest is claimed, and the tensors that a control takes from the other role.

    ``seconds`` slows the push down to last about so long, where it would be over sooner. ``draft``: into the server's
    draft, whose transaction leaves the label of the model as it is. ``only``: a partial push of these tensors alone.
    """

    role: str
    other: str | None = None
    from_other: tuple[str, ...] = ()
    purpose: str = "transition"
    seconds: float | None = None
    draft: bool = False
    only: tuple[str, ...] = ()


class TransactionFailed(VstError):
    """A transaction or one of the moves around it failed; ``outcome`` is how the check on it ends."""

    def __init__(self, message: str, outcome: Outcome, file: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.file = file


@dataclass
class Steps:
    """The ordered steps of one transaction with wall-clock starts and monotonic durations in seconds."""

    timeline: Timeline
    steps: list[dict[str, Any]] = field(default_factory=list)
    _phase: Phase | None = None

    def begin(self, name: str) -> float:
        self._phase = self.timeline.begin(name)
        self.steps.append({"step": name, "began": self._phase.began, "seconds": None})
        return time.monotonic()

    def end(self, begun: float) -> None:
        self.steps[-1]["seconds"] = round(time.monotonic() - begun, 6)
        if self._phase is not None:
            self._phase.end()


def make_label(manifest: Manifest, number: int, control: bool) -> str:
    """The weight version that is set with the finish: the content by digest, and which transaction brought it.

    A control is labelled as one: its content has no digest of a checkpoint.
    """
    if control:
        return f"vst-control-{number}"
    digest = (manifest.content_digest or manifest.layout_digest).partition(":")[2]
    return f"vst-{digest[:16]}-{number}"


def transact(session: Session, push: Push) -> Sent:
    """Pause, reset, run one transaction, reset and resume: on every server of the run.

    Writes ``weight-update-<n>.json`` in every case. Raises TransactionFailed, with every server tainted.
    """
    return _transaction(session, push, f"weight-update-{session.transactions + 1}.json", _around)


def push_here(session: Session, push: Push) -> Sent:
    """One transaction as a step of a chain, which has brought the server where it is legal; else as ``transact``."""
    return _transaction(session, push, f"weight-update-{session.transactions + 1}.json", partial(_bare, move="push"))


def restore(session: Session, push: Push) -> Sent:
    """The way out of a failed transaction: pause what was given up, reset, push, reset and resume.

    A server that was started anew meanwhile goes along. The servers are reported as tainted until their answers were
    compared and the lifecycle's ``verify`` was called. Raises TransactionFailed as ``transact`` does.
    """
    return _transaction(session, push, f"weight-update-{session.transactions + 1}.json", _restoring)


def publish_only(session: Session, push: Push) -> Sent:
    """One transaction whatever the server does meanwhile, for which the caller answers: ``weight-update.json``,
    for a draft ``weight-update-draft.json``.
    """
    return _transaction(session, push, f"weight-update{'-draft' * push.draft}.json", partial(_bare, move="publish"))


Moves = Callable[[Session, Push, "str | None", Steps], Sent]


def _transaction(session: Session, push: Push, file: str, moves: Moves) -> Sent:
    session.transactions += 1
    manifest = session.manifests[push.role]
    control = push.other is not None or bool(push.only)
    label = session.label if push.draft else make_label(manifest, session.transactions, control)
    timeline = session.run.evidence.timeline
    timeline.open(session.transactions, push.purpose, session.label)
    steps = Steps(timeline)
    record: dict[str, Any] = {
        "format": FORMAT,
        "number": session.transactions,
        "purpose": push.purpose,
        "claimed": {"role": push.role, "path": str(manifest.path), "content_digest": manifest.content_digest},
        "from_other": {"role": push.other, "tensors": list(push.from_other)} if push.other else None,
        **({"only": list(push.only)} if push.only else {}),
        "label": {"before": session.label, "set": label},
        "began": utc_now(),
        "outcome": "in_progress",
    }
    session.run.write(file, record)
    try:
        expect_same_instances(session)
        session.labels = {}
        begun = steps.begin("join")
        join(session)
        steps.end(begun)
        sent = moves(session, push, label, steps)
        note_labels(session)
    except VstError as error:
        _give_up(session, error)
        failure = {"error": str(error), "type": type(error).__name__, **_phase(error)}
        state = _state(session)
        timeline.fail(str(error))
        session.run.write(
            file, {**record, "outcome": "failed", "failure": failure, "steps": steps.steps, "server": state}
        )
        raise TransactionFailed(str(error), outcome_of(error), file) from error
    timeline.close(label, sent.bytes, _buckets(session, push))
    session.label = label
    done = {**record, "outcome": "finished", "sent": sent.to_json(), "steps": steps.steps, "server": _state(session)}
    session.run.write(file, done)
    return sent


def _bare(session: Session, push: Push, label: str | None, steps: Steps, move: str) -> Sent:
    fleet: Fleet = session.need("fleet")
    # A draft's transaction leaves the model what it is.
    holds = {id(one.lifecycle): one.lifecycle.holds if push.draft else _content(push) for one in fleet.replicas}
    fleet.each(lambda lifecycle: lifecycle.begin_push(push.role, move))
    sent: Sent = _push(session, push, label, steps)
    fleet.each(lambda lifecycle: lifecycle.end_push(holds[id(lifecycle)]))
    return sent


def _around(session: Session, push: Push, label: str | None, steps: Steps) -> Sent:
    mode, claim = session.conf.lane.pause_mode, CLAIMS[push.role.removeprefix("draft-")]
    _mark(session, "pausing", mode=mode)
    _step(session, steps, "pause", lambda lifecycle: lifecycle.pause(mode))
    _mark(session, "paused")
    _step(session, steps, "reset", lambda lifecycle: lifecycle.reset_caches())
    _mark(session, "push_begin", claim=claim)
    sent = _bare(session, push, label, steps, "push")
    _mark(session, "push_end", claim=claim)
    _step(session, steps, "reset", lambda lifecycle: lifecycle.reset_caches())
    _mark(session, "resuming")
    _step(session, steps, "resume", lambda lifecycle: lifecycle.resume())
    _mark(session, "resumed")
    return sent


def _restoring(session: Session, push: Push, label: str | None, steps: Steps) -> Sent:
    mode = session.conf.lane.pause_mode
    _step(session, steps, "recover", lambda one: one.begin_recovery() if one.state == "tainted" else one.pause(mode))
    _step(session, steps, "reset", lambda lifecycle: lifecycle.reset_caches())
    sent = _bare(session, push, label, steps, "push")
    _step(session, steps, "reset", lambda lifecycle: lifecycle.reset_caches())
    _step(session, steps, "resume", lambda lifecycle: lifecycle.resume())
    return sent


def _mark(session: Session, what: str, **fields: Any) -> None:
    for load in session.loads:
        load.mark(what, **fields)


def _step(session: Session, steps: Steps, name: str, move: Callable[[Lifecycle], None]) -> None:
    begun = steps.begin(name)
    session.need("fleet").each(move)
    steps.end(begun)


def _push(session: Session, push: Push, label: str | None, steps: Steps) -> Sent:
    begun, total = steps.begin("push"), session.manifests[push.role].total_bytes
    plan = PushPlan(
        manifest=str(session.manifest_files[push.role]),
        label=label,
        other=str(session.manifest_files[push.other]) if push.other else None,
        from_other=push.from_other,
        rate_limit=_rate(session, push, total),
        draft=push.draft,
        only=push.only,
    )
    sent: Sent = session.need("publisher").push(plan, total)
    steps.end(begun)
    return sent


def _rate(session: Session, push: Push, total: int) -> float | None:
    wanted = [session.conf.transfer.rate_limit_bytes_per_s, total / push.seconds if push.seconds else None]
    return min((rate for rate in wanted if rate), default=None)


def _buckets(session: Session, push: Push) -> int | None:
    """How many buckets the push was cut into; None where the backend keeps that to itself."""
    conf = session.conf.transfer
    if conf.backend != "vst_gloo" or conf.bucket_bytes is None:
        return None
    return sum(1 for _ in cut([entry.nbytes for entry in session.manifests[push.role].tensors], conf.bucket_bytes))


def _content(push: Push) -> str:
    if push.only:
        return f"what it held, with {len(push.only)} tensors of {push.role}"
    return f"{push.role} with {len(push.from_other)} tensors of {push.other}" if push.other else push.role


def _give_up(session: Session, error: VstError) -> None:
    """Nothing is undone: without a change the servers are left as they are, after one all are tainted."""
    fleet: Fleet = session.need("fleet")
    if isinstance(error, IllegalMove):
        return
    changed = not isinstance(error, PublisherFailed) or error.changed
    leave(session)
    if changed or fleet.state != "serving":
        fleet.taint(str(error), restart_needed(error, fleet.recovering, len(fleet.replicas)))


def restart_needed(error: BaseException, recovering: bool, servers: int = 1) -> str | None:
    """Why only a restart helps after this failure, None where a full push may.

    No engine rolls back, and an update that was left open refuses every later start (vLLM 0.28 and later). One that
    broke inside of a fused module leaves what came of it behind, and the next update fails on that (0.32).
    """
    if not isinstance(error, PublisherFailed):
        return None
    if error.phase == "join":
        return "its workers may still wait in the rendezvous for a publisher that is gone"
    if error.phase == "start" and error.kind != "answer":
        return "the update may have been left open: the start was sent and its answer is not known"
    if error.phase == "start" and servers > 1:
        return "the update may have been left open: a server of the group refused it, and which had begun is not known"
    if error.phase == "start":
        return "it refuses to start an update: an earlier one was left open"
    if error.phase == "broadcast" and error.kind == "answer" and recovering:
        return "the full push that was to bring it back was refused: it keeps parts of the update that broke"
    return "the update was left open: its finish did not succeed" if error.phase == "finish" else None


def outcome_of(error: BaseException) -> Outcome:
    """``fail`` where the server answered with a failure, did not answer in time, or did not do what it said; ``error``
    where a process died or nothing could be reached."""
    if isinstance(error, PublisherFailed):
        return Outcome.FAIL if error.kind in ("answer", "deadline", "stream") else Outcome.ERROR
    if isinstance(error, RestartedServer):
        return Outcome.FAIL
    from vst.server.client import HttpFailure

    return Outcome.ERROR if isinstance(error, TransportError) and not isinstance(error, HttpFailure) else Outcome.FAIL


def _phase(error: VstError) -> dict[str, Any]:
    return {"phase": error.phase, "kind": error.kind} if isinstance(error, PublisherFailed) else {}


def _state(session: Session) -> dict[str, Any]:
    fleet: Fleet = session.need("fleet")
    return {"state": fleet.state, "holds": fleet.holds}


def answers_check(error: VstError | None) -> Check:
    """``server.answers``: every question that the lane asked got an answer."""
    if error is None:
        return Check("server.answers", Outcome.PASS, None, "an answer to every question")
    return Check("server.answers", Outcome.ERROR, None, "an answer to every question", reason=str(error))


def completed_check(done: list[Sent], failure: TransactionFailed | None) -> Check:
    """``transfer.completed``: every transaction of a lane was finished, and what left the machine was whole."""
    observed = {"finished": len(done), "bytes": sum(sent.bytes for sent in done)}
    if failure is None:
        return Check("transfer.completed", Outcome.PASS, observed, "every transaction finished")
    reason = f"{failure}; no finish and no resume were sent after it"
    return Check(
        "transfer.completed",
        failure.outcome,
        observed,
        "every transaction finished",
        reason=reason,
        evidence=failure.file,
    )


def write_manifest(session: Session, role: str) -> Path:
    """Write a role's manifest into the run directory, where the publisher reads it."""
    path = session.run.write(f"manifest-{role}.json", session.manifests[role].to_json())
    session.manifest_files[role] = path
    return path
