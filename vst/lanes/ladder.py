"""The ladder: L0, L1, … in order, stopping at the first that does not pass."""

from __future__ import annotations

from collections.abc import Callable

from vst.config import LANES, needs_checkpoint
from vst.errors import ConfigError, TransportError, VerificationError, VstError
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files, still_stable
from vst.lanes.identity import run_identity
from vst.lanes.lifecycle import run_lifecycle
from vst.lanes.references import keep, make_key, obtain
from vst.lanes.sending import start_publisher
from vst.lanes.servers import UNDER_TEST, attach, owned, start_server
from vst.lanes.session import Server, Session
from vst.lanes.transition import run_transition
from vst.server.allocation import TooFewDevices
from vst.server.lock import ServerLock
from vst.verdict import Check, LaneVerdict, Outcome, Verdict

Show = Callable[[LaneVerdict], None]
REACHABLE = ("server.reachable", "a server")


def climb(session: Session, verdict: Verdict, show: Show) -> None:
    """Run the lanes up to ``lane.upto`` into ``verdict``, and end with what must have held all the time."""
    files, before = run_files(session)
    upto = session.conf.lane.upto
    if files.passed and upto != "L0":
        verdict.lanes.append(files)
        show(files)
        _with_server(session, verdict, show, upto)
        files = verdict.lanes[0]
        verdict.lanes[0] = LaneVerdict("L0", (*files.checks, still_stable(before, session)))
        if not verdict.lanes[0].passed:
            show(verdict.lanes[0])
    else:
        checks = (*files.checks, still_stable(before, session)) if session.manifests else files.checks
        verdict.lanes.append(LaneVerdict("L0", checks))
        show(verdict.lanes[0])


def _with_server(session: Session, verdict: Verdict, show: Show, upto: str) -> None:
    wanted = LANES[1 : LANES.index(upto) + 1]
    try:
        start_publisher(session)
        if owned(session) and "L3" in wanted:
            # The cold server comes first and is gone before the other starts: on GPUs they need the same ones.
            session.reference = obtain(session)
        session.progress.say("starting the server on A" if owned(session) else "attaching to the server")
        session.server = open_server(session)
        session.lock = ServerLock(session.server.control.base_url)
    except VstError as error:
        verdict.lanes.append(not_started(error))
        show(verdict.lanes[-1])
        return
    for name in wanted:
        lane = _run(session, name)
        verdict.lanes.append(lane)
        _close_fail(session, lane)
        show(lane)
        if not lane.passed:
            return


def open_server(session: Session) -> Server:
    """The server under test: started on A, or the one to attach to."""
    return start_server(session, session.manifests["model"].path, UNDER_TEST) if owned(session) else attach(session)


def not_started(error: VstError) -> LaneVerdict:
    """L1 when there is no server to look at: refused for what we will not do, error for what broke.

    A wrong configuration is raised again: it is no statement about a server.
    """
    if isinstance(error, ConfigError):
        raise error
    outcome = Outcome.REFUSED if isinstance(error, VerificationError) else Outcome.ERROR
    name, expected = ("server.devices", "a GPU for each") if isinstance(error, TooFewDevices) else REACHABLE
    return LaneVerdict("L1", (Check(name, outcome, expected=expected, reason=str(error)),))


def _run(session: Session, name: str) -> LaneVerdict:
    if name == "L1":
        lane = run_contract(session)
        whole = owned(session) and not session.conf.server.faults
        if lane.passed and whole and session.conf.lane.cycles and needs_checkpoint(session.conf.lane):
            _keep_own(session)
        return lane
    if name == "L2":
        return run_identity(session)
    if name == "L4":
        return run_lifecycle(session, session.need("reference"))
    try:
        session.reference = session.reference or obtain(session)
        return run_transition(session, session.reference)
    except VstError as error:
        outcome = Outcome.ERROR if isinstance(error, TransportError) else Outcome.REFUSED
        return LaneVerdict(
            "L3", (Check("reference.comparable", outcome, expected="a reference of B", reason=str(error)),)
        )


def _keep_own(session: Session) -> None:
    """A server that we started on A and nobody has touched yet is a cold one: its first record is a reference of A."""
    key = make_key(session, "model", session.need("publisher").wait_ready())
    keep(session, key, session.records[0], session.need("facts"))


def _close_fail(session: Session, lane: LaneVerdict) -> None:
    """After a lane that did not pass, a server that may not hold what it should is tainted."""
    lifecycle = session.lifecycle
    if lane.passed or lifecycle is None or session.transactions == 0:
        return
    if lane.cause in (Outcome.FAIL, Outcome.ERROR) or not lifecycle.verified:
        lifecycle.taint(f"{lane.lane} did not pass")
