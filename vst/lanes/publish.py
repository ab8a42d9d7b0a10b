"""Lane ``publish``: one transaction into a running server and nothing else — no pause, no reset, no request, no resume.

The caller answers for the server's state. What is proven is what left the machine and that the server acknowledged it;
that it serves it is not, and the verdict does not say so.
"""

from __future__ import annotations

from pathlib import Path

from vst.errors import ConfigError, VstError
from vst.lanes.contract import Expected, contract_checks, devices_check
from vst.lanes.drafts import push_with_draft
from vst.lanes.files import run_files, still_stable
from vst.lanes.fleet import Replica, over_all
from vst.lanes.fleet_opening import make_fleet, open_servers
from vst.lanes.ladder import Show, not_started
from vst.lanes.sending import start_publisher
from vst.lanes.servers import on_this_machine, owned, scripted, spec, split
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, completed_check, publish_only
from vst.server.facts import ServerFacts
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
        open_servers(session)
        session.fleet = make_fleet(session, "unknown")
    except VstError as error:
        return LaneVerdict("publish", not_started(error).checks)
    found = [[(one.server.title, check) for check in _contract(session, one)] for one in session.fleet.replicas]
    checks = [over_all(same) for same in zip(*found, strict=True)]
    if any(check.outcome is not Outcome.PASS for check in checks):
        return LaneVerdict("publish", tuple(checks))
    session.label = session.need("facts").weight_version
    sent: list[Sent] = []
    failure = None
    try:
        sent += push_with_draft(session, Push("checkpoint", purpose="publish"), publish_only)
    except TransactionFailed as error:
        failure = error
    return LaneVerdict("publish", (*checks, completed_check(sent, failure)))


def _contract(session: Session, replica: Replica) -> list[Check]:
    return [*known_contract(session, replica), awake_check(replica.facts)]


def known_contract(session: Session, replica: Replica) -> list[Check]:
    """The part of L1 that can be known without a request: version, backend, group size, devices."""
    publisher = session.publisher or start_publisher(session)
    expected = Expected(
        model=replica.server.name,
        root=Path(),
        backend=session.conf.transfer.backend,
        world_size=spec(session).world_size,
        publisher_vllm=publisher.wait_ready()["vllm"],
        publisher_device=split(session).gpu,
        server_devices=split(session).server or (),
        local=on_this_machine(session),
        scripted=scripted(session),
    )
    facts = replica.facts
    found = {check.id: check for check in contract_checks(facts, expected)}
    wanted = ("server.reachable", "server.dialect", "server.routes", "server.transfer", "server.world")
    return [*(found[id] for id in wanted), devices_check(expected)]


def awake_check(facts: ServerFacts) -> Check:
    """``update.asleep_refused``: a sleeping server has no memory to receive into; paused is as it should be."""
    if facts.sleeping is False:
        return Check("update.asleep_refused", Outcome.PASS, facts.sleeping, False)
    reason = "the server is asleep or does not say: wake its weights first; no start was sent"
    return Check("update.asleep_refused", Outcome.REFUSED, facts.sleeping, False, reason=reason)
