"""Lane ``lifecycle``: one chain of moves around one or more pushes, or the steps of a plan, each step observed.

It proves what the steps ask for and nothing else: without an ``ask`` nobody looks at what the server serves, and
the verdict does not speak of it.
"""

from __future__ import annotations

from pathlib import Path

from vst.errors import VstError
from vst.lanes.chain import Interpreter, StepFailed
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files, still_stable
from vst.lanes.fleet_opening import make_fleet, open_servers
from vst.lanes.ladder import Show, not_started
from vst.lanes.publish import known_contract
from vst.lanes.references import obtain
from vst.lanes.same_server import same_check
from vst.lanes.sending import start_publisher
from vst.lanes.servers import owned
from vst.lanes.session import Session
from vst.server.facts import ServerFacts
from vst.server.plan import Step, parse_all, read_plan
from vst.server.states import IllegalMove
from vst.verdict import Check, LaneVerdict, Outcome, Verdict


def operate(session: Session, verdict: Verdict, show: Show) -> None:
    """Audit the files, look at the server, judge the chain whole, then make its steps."""
    steps = chosen_steps(session)
    files, before = run_files(session, needs_model(session, steps))
    verdict.lanes.append(files)
    show(files)
    if not files.passed:
        return
    verdict.lanes.append(_begin(session, steps))
    show(verdict.lanes[-1])
    if verdict.lanes[-1].passed:
        verdict.lanes.append(_run(session, steps))
        show(verdict.lanes[-1])
    verdict.lanes[0] = LaneVerdict("L0", (*files.checks, still_stable(before, session)))


def chosen_steps(session: Session) -> tuple[Step, ...]:
    """The steps of ``lane.plan``, or those of ``lifecycle.chain``."""
    plan = session.conf.lane.plan
    return read_plan(Path(plan).expanduser().absolute()) if plan else parse_all(session.conf.lifecycle.chain)


def needs_model(session: Session, steps: tuple[Step, ...]) -> bool:
    """Whether checkpoint A is read: a server is started on it, a step pushes it, or answers are compared with it."""
    return owned(session) or any(step.verb == "ask" or "model" in step.args for step in steps)


def _asks(steps: tuple[Step, ...]) -> bool:
    return any(step.verb == "ask" for step in steps)


def _begin(session: Session, steps: tuple[Step, ...]) -> LaneVerdict:
    """The server is there and is what was declared; with questions to come also L1's records and the reference of B."""
    try:
        start_publisher(session)
        if _asks(steps) and owned(session):
            session.reference = obtain(session)
        open_servers(session)
        if _asks(steps):
            found = run_contract(session)
            if found.passed and session.reference is None:
                session.reference = obtain(session)
            return found
        session.fleet = make_fleet(session, _holds(session))
    except VstError as error:
        return not_started(error)
    [replica] = session.fleet.replicas
    session.label = replica.facts.weight_version
    return LaneVerdict("L1", (*known_contract(session, replica), known_check(replica.facts)))


def _holds(session: Session) -> str:
    return "model" if owned(session) else "unknown"


def known_check(facts: ServerFacts) -> Check:
    """``server.state`` for a server that may be in any state: it must be known, as the chain is judged from there."""
    observed = {"paused": facts.paused, "sleeping": facts.sleeping}
    if facts.paused is None or facts.sleeping is None:
        reason = "the server does not say whether it is paused and asleep: no chain can be judged from there"
        return Check("server.state", Outcome.REFUSED, observed, "known", reason=reason)
    return Check("server.state", Outcome.PASS, observed, "known")


def _run(session: Session, steps: tuple[Step, ...]) -> LaneVerdict:
    expected = {}
    if session.reference is not None:
        expected = {"model": session.records[0], "checkpoint": session.reference.record}
    chain = Interpreter(session, "lifecycle", expected)
    legal = legal_check(chain, steps)
    if legal.outcome is not Outcome.PASS:
        return LaneVerdict("lifecycle", (legal,))
    failure: VstError | None = None
    session.progress.say(f"a chain of {len(steps)} steps: {', '.join(map(str, steps))}")
    try:
        chain.run(steps)
    except VstError as error:
        failure = error
    return LaneVerdict("lifecycle", (legal, steps_check(chain, steps, failure), same_check(session)))


def legal_check(chain: Interpreter, steps: tuple[Step, ...]) -> Check:
    """``lifecycle.legal``: the chain as a whole is allowed by the table of states, from where the server is."""
    written = [str(step) for step in steps]
    try:
        ends = chain.check(steps)
    except IllegalMove as error:
        reason = f"{error}; no step was made"
        return Check("lifecycle.legal", Outcome.REFUSED, written, "legal steps only", reason=reason)
    warnings = tuple(f"the chain may end with a server that is {one.value}" for one in sorted(ends) if one != "serving")
    return Check("lifecycle.legal", Outcome.PASS, written, "legal steps only", warnings=warnings)


def steps_check(chain: Interpreter, steps: tuple[Step, ...], failure: VstError | None) -> Check:
    """``lifecycle.steps``: every step was made, and the server was seen to be where it leads."""
    expected, observed = f"{len(steps)} steps, each observed", [f"{done.step}: {done.after}" for done in chain.done]
    if failure is None and len(chain.done) == len(steps):
        return Check("lifecycle.steps", Outcome.PASS, observed, expected, evidence=chain.file)
    outcome = failure.outcome if isinstance(failure, StepFailed) else Outcome.ERROR
    if isinstance(failure, IllegalMove):
        outcome = Outcome.FAIL
    evidence = chain.write()
    return Check("lifecycle.steps", outcome, observed, expected, reason=str(failure), evidence=evidence)

