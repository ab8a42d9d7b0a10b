"""Names of seats, checks over all servers, and the fleet as one."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from vst.errors import VerificationError
from vst.lanes.fleet import Fleet, Replica, Server, over_all
from vst.lanes.seats import each_check
from vst.lanes.sending import one_address
from vst.server.client import Unreachable
from vst.server.facts import Instance, ServerFacts
from vst.server.lifecycle import Lifecycle
from vst.server.seats import seat_name, seat_titles, server_titles
from vst.server.states import Situation
from vst.transfer.plan import JoinPlan, Member
from vst.verdict import Check, Outcome


class Silent:
    """A control plane that never answers."""

    def post(self, path: str, **how: Any) -> None:
        raise Unreachable(f"POST {path}: no answer")


def replica(title: str) -> Replica:
    facts = ServerFacts("0.32.0", (), (), 1, False, False, None, Instance(None, None))
    lifecycle = Lifecycle(Silent(), lambda kind, **fields: None)  # type: ignore[arg-type]
    lifecycle.found(False, False, "model")
    return Replica(Server(Silent(), "tiny", None, title), facts, lifecycle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("server", "servers", "seats"),
    [
        ({}, ("",), ("",)),
        ({"replicas": 1, "data_parallel_size": 2}, ("",), ("rank 0", "rank 1")),
        ({"replicas": 2}, ("server 1", "server 2"), ("server 1", "server 2")),
        ({"base_urls": ["http://a", "http://b"]}, ("http://a", "http://b"), ("http://a", "http://b")),
        ({"replicas": 2, "data_parallel_size": 2}, ("server 1", "server 2"),
         ("server 1 rank 0", "server 1 rank 1", "server 2 rank 0", "server 2 rank 1")),
    ],
)  # fmt: skip
def test_only_what_is_one_of_several_has_a_name(
    server: dict[str, Any], servers: tuple[str, ...], seats: tuple[str, ...]
) -> None:
    assert server_titles(server) == servers
    assert seat_titles(server) == seats


def test_the_first_seat_keeps_the_plain_names() -> None:
    assert [seat_name("model-1", seat) for seat in range(3)] == ["model-1", "model-1@2", "model-1@3"]


def test_the_workers_of_the_servers_follow_one_another_in_the_group() -> None:
    members = (Member("http://a", 2), Member("http://b", 1), Member("http://c", 4))
    plan = JoinPlan("l", members, None, "vst_gloo", "127.0.0.1", 0, 64, "cpu", 1.0, 1.0)
    assert (plan.world_size, plan.offsets) == (8, (1, 3, 4))
    assert JoinPlan.from_json(plan.to_json()) == plan


def test_servers_elsewhere_decide_the_address_and_two_ways_to_us_are_refused() -> None:
    assert one_address(["127.0.0.1", "127.0.0.1"]) == "127.0.0.1"
    assert one_address(["127.0.0.1", "10.0.0.5"]) == "10.0.0.5"
    with pytest.raises(VerificationError, match="transfer.master_address"):
        one_address(["10.0.0.5", "10.1.0.5"])


def test_the_worst_of_a_check_on_several_servers_counts_and_is_named() -> None:
    good = Check("server.state", Outcome.PASS, 1)
    refused = Check("server.state", Outcome.REFUSED, 2, reason="it sleeps")
    failed = Check("server.state", Outcome.FAIL, 3, reason="it lies")
    assert over_all([("", refused)]) == refused
    both = over_all([("server 1", good), ("server 2", refused), ("server 3", failed)])
    assert both.outcome is Outcome.FAIL
    assert both.reason == "server 2: it sleeps; server 3: it lies"
    assert both.observed == {"server 1": 1, "server 2": 2, "server 3": 3}
    declared = Check("server.state", Outcome.NOT_APPLICABLE, reason="declared")
    assert over_all([("a", good), ("b", declared)]).outcome is Outcome.NOT_APPLICABLE


def result(seat: str, equal: bool) -> dict[str, Any]:
    like = "" if equal else "no effect: equals A"
    return {"seat": seat, "equal": equal, "looks_like": like, "first": None, "record": "record-x@2.json"}


def test_every_seat_must_be_right_and_all_must_be_there() -> None:
    good = [result("server 1", True), result("server 2", True)]
    assert each_check(good, 2, 0.0).outcome is Outcome.PASS
    assert each_check(good, 4, 0.0).outcome is Outcome.INCONCLUSIVE
    bad = each_check([*good, result("server 1", True), result("server 2", False)], 4, 0.0)
    assert (bad.outcome, bad.evidence) == (Outcome.FAIL, "record-x@2.json")
    assert bad.reason.startswith("server 2: no effect: equals A")


def test_a_move_reaches_every_server_even_when_one_fails_and_the_failure_has_its_name() -> None:
    fleet = Fleet((replica("server 1"), replica("server 2"), replica("server 3")))
    moved, meet = [], threading.Barrier(3, timeout=10)

    def move(one: Replica) -> None:
        meet.wait()  # all at once: none waits for another to end
        moved.append(one.server.title)
        if one.server.title == "server 2":
            raise VerificationError("/is_paused says False")

    with pytest.raises(VerificationError, match="^server 2: /is_paused says False"):
        fleet.visit(move)
    assert sorted(moved) == ["server 1", "server 2", "server 3"]


def test_the_state_of_a_fleet_is_that_of_its_worst_server() -> None:
    fleet = Fleet((replica("server 1"), replica("server 2")))
    assert (fleet.state, fleet.holds, fleet.verified) == ("serving", "model", True)
    fleet.replicas[1].lifecycle.died("gone")
    fleet.replicas[1].lifecycle.holds = "nothing"
    assert fleet.state == "dead"
    assert fleet.holds == "server 1: model; server 2: nothing"
    assert fleet.replicas[0].lifecycle.situation is Situation.SERVING
