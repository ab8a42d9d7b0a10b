"""Lane ``publish``: one transaction into a running server and nothing else — no pause, no reset, no request, no resume.

The caller answers for the server's state. What is proven is what left the machine and that the server acknowledged it;
that it serves it is not, and the verdict does not say so.
"""

from __future__ import annotations

from pathlib import Path

from vst.errors import ConfigError, VstError
from vst.lanes.contract import Expected, contract_checks, devices_check
from vst.lanes.files import run_files, still_stable
from vst.lanes.ladder import Show, not_started
from vst.lanes.sending import start_publisher
from vst.lanes.servers import attach, on_this_machine, owned, scripted, spec, split
from vst.lanes.session import Server, Session
from vst.lanes.transaction import Push, TransactionFailed, completed_check, publish_only
from vst.server.facts import ServerFacts, read_facts
from vst.server.lifecycle import Lifecycle
from vst.server.lock import ServerLock
from vst.transfer.plan import Sent
from vst.verdict import Check, LaneVerdict, Outcome, Verdict


def publish(session: Session, verdict: Verdict, show: Show) -> None:
    """Audit B, join, start, update, finish."""
    if owned(session):
        raise ConfigError(
            "lane=publish pushes into a running server: set server=attach server.base_url=http://host:port"
        )
    files, before = run_files(session)
    verdict.lanes.append(files)
    show(files)
    if not files.passed:
        return
    verdict.lanes.append(_push(session))
    verdict.lanes[0] = LaneVerdict("L0", (*files.checks, still_stable(before, session)))
    show(verdict.lanes[-1])


def _push(session: Session) -> LaneVerdict:
    try:
        start_publisher(session)
        session.server = attach(session)
        session.lock = ServerLock(session.server.control.base_url)
        session.facts = read_facts(session.server.control)
    except VstError as error:
        return LaneVerdict("publish", not_started(error).checks)
    checks = [*known_contract(session, session.facts, session.server), awake_check(session.facts)]
    if any(check.outcome is not Outcome.PASS for check in checks):
        return LaneVerdict("publish", tuple(checks))
    session.label = session.facts.weight_version
    session.lifecycle = Lifecycle(session.server.control, session.run.event)
    session.lifecycle.found(session.facts.paused is True, session.facts.sleeping is True, "unknown")
    sent: list[Sent] = []
    failure = None
    try:
        sent.append(publish_only(session, Push("checkpoint", purpose="publish")))
    except TransactionFailed as error:
        failure = error
    return LaneVerdict("publish", (*checks, completed_check(sent, failure)))


def known_contract(session: Session, facts: ServerFacts, server: Server) -> list[Check]:
    """The part of L1 that can be known without a request: version, backend, group size, devices."""
    publisher = session.publisher or start_publisher(session)
    expected = Expected(
        model=server.name,
        root=Path(),
        backend=session.conf.transfer.backend,
        world_size=spec(session).world_size,
        publisher_vllm=publisher.wait_ready()["vllm"],
        publisher_device=split(session).gpu,
        server_devices=split(session).server or (),
        local=on_this_machine(session),
        scripted=scripted(session),
    )
    found = {check.id: check for check in contract_checks(facts, expected)}
    wanted = ("server.reachable", "server.dialect", "server.routes", "server.transfer", "server.world")
    return [*(found[id] for id in wanted), devices_check(expected)]


def awake_check(facts: ServerFacts) -> Check:
    """``update.asleep_refused``: a sleeping server has no memory to receive into; paused is as it should be."""
    if facts.sleeping is False:
        return Check("update.asleep_refused", Outcome.PASS, facts.sleeping, False)
    reason = "the server is asleep or does not say: wake its weights first; no start was sent"
    return Check("update.asleep_refused", Outcome.REFUSED, facts.sleeping, False, reason=reason)
