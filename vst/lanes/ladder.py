"""The ladder: L0, L1, L2, … in order, stopping at the first that does not pass. ``RUNGS`` is the one list of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vst.config import LANES, needs_checkpoint
from vst.errors import ConfigError, TransportError, VerificationError, VstError
from vst.lanes.cold_evaluation import ColdEvaluation
from vst.lanes.endurance.lane import run_endurance
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files, still_stable
from vst.lanes.fleet_opening import open_servers
from vst.lanes.identity import run_identity
from vst.lanes.lifecycle import run_lifecycle
from vst.lanes.quality import run_quality
from vst.lanes.references import keep, make_key, obtain
from vst.lanes.sending import start_publisher
from vst.lanes.servers import owned
from vst.lanes.session import Session
from vst.lanes.transition import run_transition
from vst.oracle.reference import Reference
from vst.server.allocation import TooFewDevices
from vst.server.seats import server_titles
from vst.verdict import Check, LaneVerdict, Outcome, Verdict

Show = Callable[[LaneVerdict], None]
REACHABLE = ("server.reachable", "a server")


def climb(session: Session, verdict: Verdict, show: Show) -> None:
    """Run the lanes up to ``lane.upto`` into ``verdict``, and end with what must have held all the time."""
    upto = session.conf.lane.upto
    files, before = run_files(session)
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
        if "L5" in wanted and not _questions(session, verdict, show):
            return
        if owned(session) and "L3" in wanted:
            # The cold server comes first and is gone before the other starts: on GPUs they need the same ones.
            session.reference = cold_answers(session)
        session.progress.say(_opening(session))
        open_servers(session)
    except VstError as error:
        verdict.lanes.append(not_started(error))
        show(verdict.lanes[-1])
        return
    for name in wanted:
        lane = RUNGS[name](session)
        verdict.lanes.append(lane)
        _close_fail(session, lane)
        show(lane)
        if not lane.passed:
            return


def _opening(session: Session) -> str:
    count = len(server_titles(vars(session.conf.server)))
    what = "the server" if count == 1 else f"{count} servers"
    return f"starting {what} on A" if owned(session) else f"attaching to {what}"


def _questions(session: Session, verdict: Verdict, show: Show) -> bool:
    """Read what L5 will ask before anything is started; whether files of it that cannot be used ended the run here."""
    try:
        session.evaluation = ColdEvaluation(session)
    except VerificationError as error:
        check = Check("eval.pinned", Outcome.REFUSED, expected="questions that can be asked", reason=str(error))
        verdict.lanes.append(LaneVerdict("L5", (check,)))
        show(verdict.lanes[-1])
        return False
    return True


def cold_answers(session: Session) -> Reference:
    """The reference of B and, where it is asked for, the evaluation of a cold B; of one cold server if both are new."""
    evaluation = session.evaluation
    besides = evaluation.take if evaluation is not None and not evaluation.found else None
    reference = obtain(session, besides)
    if evaluation is not None and not evaluation.found:
        evaluation.start_and_take()
    return reference


def not_started(error: VstError) -> LaneVerdict:
    """L1 when there is no server to look at: refused for what we will not do, error for what broke.

    A wrong configuration is raised again: it is no statement about a server.
    """
    if isinstance(error, ConfigError):
        raise error
    outcome = Outcome.REFUSED if isinstance(error, VerificationError) else Outcome.ERROR
    name, expected = ("server.devices", "a GPU for each") if isinstance(error, TooFewDevices) else REACHABLE
    return LaneVerdict("L1", (Check(name, outcome, expected=expected, reason=str(error)),))


def _contract(session: Session) -> LaneVerdict:
    lane = run_contract(session)
    whole = owned(session) and not session.conf.server.faults
    if lane.passed and whole and session.conf.lane.cycles and needs_checkpoint(session.conf.lane):
        _keep_own(session)
    return lane


def _referred(lane: str, run: Callable[[Session, Reference], LaneVerdict]) -> Callable[[Session], LaneVerdict]:
    """A lane that needs the reference of B, which is taken when the first of them is reached."""

    def climb_one(session: Session) -> LaneVerdict:
        try:
            session.reference = session.reference or cold_answers(session)
        except VstError as error:
            outcome = Outcome.ERROR if isinstance(error, TransportError) else Outcome.REFUSED
            check = Check("reference.comparable", outcome, expected="a reference of B", reason=str(error))
            return LaneVerdict(lane, (check,))
        return run(session, session.reference)

    return climb_one


def _quality(session: Session) -> LaneVerdict:
    return run_quality(session, session.need("evaluation").plan)


RUNGS: Mapping[str, Callable[[Session], LaneVerdict]] = {
    "L1": _contract,
    "L2": run_identity,
    "L3": _referred("L3", run_transition),
    "L4": _referred("L4", run_lifecycle),
    "L5": _quality,
    "L6": _referred("L6", run_endurance),
}


def _keep_own(session: Session) -> None:
    """A server that we started on A and nobody has touched yet is a cold one: its first record is a reference of A."""
    key = make_key(session, "model", session.need("publisher").wait_ready())
    keep(session, "model", key, session.records[0], session.need("facts"), started=True)


def _close_fail(session: Session, lane: LaneVerdict) -> None:
    """After a lane that did not pass, a server that may not hold what it should is tainted."""
    fleet = session.fleet
    if lane.passed or fleet is None or session.transactions == 0:
        return
    if lane.cause in (Outcome.FAIL, Outcome.ERROR) or not fleet.verified:
        fleet.taint(f"{lane.lane} did not pass")
