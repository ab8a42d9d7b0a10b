"""Lane L1, the asking half: read the servers' facts, make them generate, take the first records."""

from __future__ import annotations

import sys
from pathlib import Path

from vst.errors import TransportError
from vst.lanes.asking import choose_probes, take_each
from vst.lanes.contract import (
    IDS,
    Expected,
    contract_checks,
    finite_check,
    not_evaluated,
    repeatable_check,
)
from vst.lanes.fleet import Fleet, named, over_all
from vst.lanes.fleet_opening import make_fleet
from vst.lanes.seats import EACH, arrived, seat_checks
from vst.lanes.sending import start_publisher
from vst.lanes.servers import on_this_machine, scripted, served_name, spec, split
from vst.lanes.session import Server, Session
from vst.oracle.compare import spread
from vst.oracle.record import Record, take_record
from vst.server.facts import ServerFacts
from vst.verdict import Check, LaneVerdict, Outcome


def run_contract(session: Session) -> LaneVerdict:
    """Examine the session's servers; fills the fleet, the probes, the first records and the noise floor."""
    checks: list[Check] = []
    try:
        _examine(session, checks)
    except TransportError as error:
        done = {check.id for check in checks}
        name = next(id for id in _ids(session) if id not in done)
        # A server that is reachable and does not generate is not alive: that is a property, not an accident.
        outcome = Outcome.FAIL if name == "server.alive" else Outcome.ERROR
        checks.append(Check(name, outcome, expected="an answer", reason=str(error)))
    return LaneVerdict("L1", tuple([*checks, *not_evaluated(checks, _ids(session))]))


def _ids(session: Session) -> tuple[str, ...]:
    """The checks of the lane; with several seats each of them is judged."""
    return (*IDS, EACH) if len(session.seats) > 1 else IDS


def _examine(session: Session, checks: list[Check]) -> None:
    session.fleet = fleet = make_fleet(session, "model")
    session.label = session.need("facts").weight_version
    publisher = session.publisher or start_publisher(session)
    checks += _contract(session, fleet, publisher.wait_ready()["vllm"])
    if any(check.outcome is not Outcome.PASS for check in checks):
        return
    session.probes = choose_probes(session, shortest(fleet))
    checks.append(over_all([(seat.title, _alive(session, seat)) for seat in session.seats]))
    session.progress.say("taking the first records")
    repeats = range(1, session.conf.oracle.repeats + 1)
    taken = [take_each(session, "A", f"model-{number}") for number in repeats]
    session.records = [records[0] for records in taken]
    checks += _first_records(session, taken)


def _contract(session: Session, fleet: Fleet, publisher_vllm: str) -> list[Check]:
    expected = [_expected(session, publisher_vllm, index) for index in range(len(fleet.replicas))]
    found = [
        [(one.server.title, check) for check in contract_checks(one.facts, wanted)]
        for one, wanted in zip(fleet.replicas, expected, strict=True)
    ]
    return [over_all(same) for same in zip(*found, strict=True)]


def shortest(fleet: Fleet) -> ServerFacts:
    """The facts of the server that takes the shortest prompts: all seats are asked the same."""
    return min((one.facts for one in fleet.replicas), key=lambda facts: facts.max_model_len or sys.maxsize)


def _first_records(session: Session, taken: list[list[Record]]) -> list[Check]:
    """The checks on the first records, of which ``taken`` has those of all seats for each repeat.

    The noise floor is the largest spread within one seat: what two seats differ by is no noise.
    """
    seats = [list(records) for records in zip(*taken, strict=True)]
    titles = [seat.title for seat in session.seats]
    spreads = [spread(records) for records in seats]
    repeatable = over_all([(t, repeatable_check(found)) for t, found in zip(titles, spreads, strict=True)])
    if repeatable.outcome is Outcome.PASS:
        session.floor = max(found.largest for found in spreads)
    finite = over_all([(t, finite_check(records)) for t, records in zip(titles, seats, strict=True)])
    if len(seats) == 1:
        return [repeatable, finite]
    if session.floor is None:
        return [repeatable, finite, *not_evaluated([repeatable], (EACH,))]
    first = seats[0][0]
    return [repeatable, finite, *seat_checks(session, arrived(session, taken[0], "model-1", first, first), 1)]


def _expected(session: Session, publisher_vllm: str, index: int) -> Expected:
    conf = session.conf
    return Expected(
        model=served_name(session),
        root=Path(conf.model.path).expanduser().absolute(),
        backend=conf.transfer.backend,
        world_size=spec(session, index).world_size,
        publisher_vllm=publisher_vllm,
        publisher_device=split(session).gpu,
        server_devices=split(session).server or (),
        local=on_this_machine(session),
        scripted=scripted(session),
    )


def _alive(session: Session, seat: Server) -> Check:
    probes = session.need("probes")
    one = type(probes)(probes.prompts[:1], 1, 1, probes.seed)
    try:
        record = take_record(seat.control, seat.name, one, "alive", session.conf.server.request_timeout_s)
    except TransportError as error:
        raise named(error, seat.title) from error
    return Check("server.alive", Outcome.PASS, len(record.answers[0].output), "one generated token within the deadline")
