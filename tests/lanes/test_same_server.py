"""``server.same``: nobody else moved the server between two looks of this run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from http_server import HttpServer

from vst.lanes.fleet import Fleet, Replica, Server
from vst.lanes.same_server import expect_same_instances, note_labels, same_check, unchanged_check
from vst.server.client import ControlPlane
from vst.server.facts import Instance, ServerFacts
from vst.verdict import Outcome

START = "process_start_time_seconds 100.5\n"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    routes = {
        "GET /metrics": START.encode(),
        "GET /version": {"version": "0.32.0"},
        "GET /weight_info": {"weight_version": "default"},
    }
    with HttpServer(routes) as running:
        yield running


def session(server: HttpServer) -> Any:
    facts = ServerFacts("0.32.0", (), (), 1, False, False, "default", Instance("100.5", None))
    replica = Replica(Server(ControlPlane(server.url), "m"), facts, SimpleNamespace())  # type: ignore[arg-type]
    return SimpleNamespace(need=lambda name: Fleet((replica,)), labels=None, path=Path())


def test_a_server_that_nobody_touched_is_the_same(server: HttpServer) -> None:
    run = session(server)
    expect_same_instances(run)
    assert same_check(run).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("route", "answer", "told"),
    [
        ("GET /metrics", b"process_start_time_seconds 200.0\n", "restarted behind our back"),
        ("GET /version", {"version": "0.31.0"}, "was 0.32.0 when it was examined and is 0.31.0 now"),
        ("GET /weight_info", {"weight_version": "theirs"}, "it was default after this run's last look and is theirs"),
    ],
)
def test_what_moved_by_itself_is_named(server: HttpServer, route: str, answer: Any, told: str) -> None:
    run = session(server)
    server.routes[route] = answer
    check = same_check(run)
    assert check.outcome is Outcome.FAIL
    assert told in check.reason


def test_a_label_of_our_own_is_the_one_that_must_stay(server: HttpServer) -> None:
    run = session(server)
    server.routes["GET /weight_info"] = {"weight_version": "ours"}
    note_labels(run)
    expect_same_instances(run)
    server.routes["GET /weight_info"] = {"weight_version": "default"}
    assert same_check(run).outcome is Outcome.FAIL


def test_after_an_update_that_failed_nothing_is_known_of_the_label(server: HttpServer) -> None:
    run = session(server)
    run.labels = {}
    server.routes["GET /weight_info"] = {"weight_version": "anything"}
    assert same_check(run).outcome is Outcome.PASS


def test_a_server_without_labels_is_not_blamed_for_it(server: HttpServer) -> None:
    run = session(server)
    del server.routes["GET /weight_info"]
    run.labels = {"": None}
    assert same_check(run).outcome is Outcome.PASS


def test_an_attached_server_without_a_start_time_is_not_proven_to_be_the_same() -> None:
    check = unchanged_check(Instance(None, None), owned_process=False)
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "process_start_time_seconds" in check.reason


def test_a_start_time_that_did_not_move_or_a_process_of_ours_is_the_same_server() -> None:
    assert unchanged_check(Instance("1.7e+09", None), owned_process=False).outcome is Outcome.PASS
    assert unchanged_check(Instance(None, None), owned_process=True).outcome is Outcome.PASS
