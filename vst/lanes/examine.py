"""Lane L1, the asking half: read the server's facts, make it generate, take the first records."""

from __future__ import annotations

from pathlib import Path

from vst.errors import TransportError, VerificationError
from vst.lanes.asking import choose_probes, take
from vst.lanes.contract import (
    IDS,
    Expected,
    contract_checks,
    finite_check,
    not_evaluated,
    repeatable_check,
)
from vst.lanes.sending import start_publisher
from vst.lanes.servers import examine, on_this_machine, scripted, served_name, spec, split
from vst.lanes.session import Session
from vst.oracle.compare import spread
from vst.oracle.record import Record, take_record
from vst.server.lifecycle import Lifecycle
from vst.verdict import Check, LaneVerdict, Outcome


def run_contract(session: Session) -> LaneVerdict:
    """Examine the session's server; fills the facts, the probes, the first records and the noise floor."""
    checks: list[Check] = []
    try:
        _examine(session, checks)
    except TransportError as error:
        done = {check.id for check in checks}
        name = next(id for id in IDS if id not in done)
        # A server that is reachable and does not generate is not alive: that is a property, not an accident.
        outcome = Outcome.FAIL if name == "server.alive" else Outcome.ERROR
        checks.append(Check(name, outcome, expected="an answer", reason=str(error)))
    return LaneVerdict("L1", tuple([*checks, *not_evaluated(checks)]))


def _examine(session: Session, checks: list[Check]) -> None:
    server = session.need("server")
    session.facts = facts = examine(session, server)
    session.label = facts.weight_version
    session.lifecycle = Lifecycle(server.control, session.run.event)
    session.lifecycle.found(facts.paused is True, facts.sleeping is True, "model")
    publisher = session.publisher or start_publisher(session)
    checks += contract_checks(facts, _expected(session, publisher.wait_ready()["vllm"]))
    if any(check.outcome is not Outcome.PASS for check in checks):
        return
    session.probes = choose_probes(session, facts)
    checks.append(_alive(session))
    session.progress.say("taking the first records")
    session.records = [
        take(session, server, "A", f"model-{number}") for number in range(1, session.conf.oracle.repeats + 1)
    ]
    checks += [_repeatable(session), finite_check(session.records)]


def _expected(session: Session, publisher_vllm: str) -> Expected:
    conf = session.conf
    return Expected(
        model=served_name(session),
        root=Path(conf.model.path).expanduser().absolute(),
        backend=conf.transfer.backend,
        world_size=spec(session).world_size,
        publisher_vllm=publisher_vllm,
        publisher_device=split(session).gpu,
        server_devices=split(session).server or (),
        local=on_this_machine(session),
        scripted=scripted(session),
    )


def _alive(session: Session) -> Check:
    server, probes = session.need("server"), session.need("probes")
    one = type(probes)(probes.prompts[:1], 1, 1, probes.seed)
    answer = take_record(server.control, server.name, one, "alive", session.conf.server.request_timeout_s).answers[0]
    return Check("server.alive", Outcome.PASS, len(answer.output), "one generated token within the deadline")


def _repeatable(session: Session) -> Check:
    records: list[Record] = session.records
    found = spread(records)
    check = repeatable_check(found)
    if check.outcome is Outcome.PASS:
        session.floor = found.largest
    if not records:
        raise VerificationError("no record was taken")
    return check
