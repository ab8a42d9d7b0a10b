from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_server import HttpServer, Reply, sequence

from vst.errors import TransportError, VerificationError
from vst.provenance.atomic import StorageFailure
from vst.server.client import ControlPlane, HttpFailure
from vst.server.lifecycle import RESETS, Lifecycle
from vst.server.states import IllegalMove


@pytest.fixture
def server() -> Iterator[HttpServer]:
    paused = [False]

    def switch(to: bool) -> Any:
        def route(call: Any) -> Any:
            paused[0] = to
            return {"status": "paused" if to else "resumed"}

        return route

    routes = {
        "POST /pause": switch(True),
        "POST /resume": switch(False),
        "GET /is_paused": lambda call: {"is_paused": paused[0]},
        **{f"POST {path}": {"success": True} for path in RESETS},
    }
    with HttpServer(routes) as one:
        yield one


def lifecycle(server: HttpServer, state: str = "serving") -> Lifecycle:
    one = Lifecycle(ControlPlane(server.url), lambda kind, **fields: None)
    one.found(state == "paused", state == "asleep", "model")
    return one


def test_a_whole_transaction_goes_pause_reset_push_reset_resume(server: HttpServer) -> None:
    one = lifecycle(server)
    one.pause("keep")
    one.reset_caches()
    one.begin_push("checkpoint")
    assert (one.state, one.holds, one.verified) == ("updating", "part of checkpoint", False)
    one.end_push("checkpoint")
    one.reset_caches()
    one.resume()
    assert (one.state, one.holds, one.verified) == ("serving", "checkpoint", False)
    one.verify()
    assert one.verified
    assert server.paths() == ["/pause", *RESETS, *RESETS, "/resume"]
    assert server.calls[0].params == {"mode": "keep"}


@pytest.mark.parametrize("answer", [{"is_paused": False}, {"is_paused": "true"}, {"is_paused": 1}, {}, "yes", None])
def test_a_pause_is_not_believed_without_is_paused(server: HttpServer, answer: Any) -> None:
    server.routes["GET /is_paused"] = answer
    with pytest.raises(VerificationError, match="expected True"):
        lifecycle(server).pause("keep")


def test_a_resume_is_not_believed_while_is_paused_says_otherwise(server: HttpServer) -> None:
    server.routes["GET /is_paused"] = {"is_paused": True}
    with pytest.raises(VerificationError, match="expected False"):
        lifecycle(server, "paused").resume()


def test_a_prefix_reset_that_says_false_is_tried_again(server: HttpServer) -> None:
    server.routes[f"POST {RESETS[0]}"] = sequence({"success": False}, {"success": False}, {"success": True})
    lifecycle(server, "paused").reset_caches()
    assert server.paths() == [RESETS[0], RESETS[0], *RESETS]


def test_a_prefix_reset_that_stays_false_fails_and_no_other_cache_is_reset(server: HttpServer) -> None:
    server.routes[f"POST {RESETS[0]}"] = {"success": False}
    with pytest.raises(HttpFailure, match="success is false"):
        lifecycle(server, "paused").reset_caches()
    assert server.paths() == [RESETS[0]] * 5


@pytest.mark.parametrize("answer", [{}, {"success": "true"}, {"success": 1}, "", None, [True]])
def test_a_prefix_reset_must_say_success_true(server: HttpServer, answer: Any) -> None:
    server.routes[f"POST {RESETS[0]}"] = answer
    with pytest.raises(VerificationError, match="expected success: true"):
        lifecycle(server, "paused").reset_caches()


def test_after_a_taint_exactly_one_pause_is_sent_and_nothing_else_ever(server: HttpServer) -> None:
    one = lifecycle(server)
    one.pause("keep")
    one.begin_push("checkpoint")
    server.calls.clear()
    one.taint("the publisher died")
    one.taint("again")
    for act in (lambda: one.pause("keep"), one.reset_caches, one.resume, lambda: one.begin_push("model")):
        with pytest.raises(IllegalMove, match="the server is tainted"):
            act()
    assert [(call.path, call.params) for call in server.calls if call.method == "POST"] == [
        ("/pause", {"mode": "keep"})
    ]
    assert (one.state, one.verified, one.left) == ("tainted", False, "paused")


UNPAUSABLE = {
    "a dead engine": ("POST /pause", Reply(503, {"detail": "engine dead"}), "503"),
    "a pause that was not made": ("GET /is_paused", {"is_paused": False}, "/is_paused says False"),
    "a pause that cannot be seen": ("GET /is_paused", Reply(404, {}), "/is_paused says None"),
}


@pytest.mark.parametrize("what", UNPAUSABLE)
def test_a_taint_holds_when_the_server_cannot_be_paused_and_nobody_is_told_that_it_is(
    server: HttpServer, what: str
) -> None:
    route, answer, reason = UNPAUSABLE[what]
    server.routes[route] = answer
    told: list[tuple[str, dict[str, Any]]] = []
    one = Lifecycle(ControlPlane(server.url), lambda kind, **fields: told.append((kind, fields)))
    one.found(False, False, "model")
    one.taint("broken")
    assert one.state == "tainted" and one.left.startswith("not known to be paused")
    assert told[-1][0] == "pause_failed" and reason in told[-1][1]["error"]


def test_a_server_that_is_dead_is_not_called(server: HttpServer) -> None:
    one = lifecycle(server)
    one.died("exit code 1")
    one.taint("afterwards")
    assert one.state == "dead" and server.calls == []


def test_every_change_of_state_is_told_with_both_states(server: HttpServer) -> None:
    told: list[dict[str, Any]] = []
    one = Lifecycle(ControlPlane(server.url), lambda kind, **fields: told.append({"kind": kind, **fields}))
    one.found(True, False, "model")
    one.resume()
    assert [(event["before"], event["after"]) for event in told] == [("unknown", "paused"), ("paused", "serving")]


def test_a_failed_pause_is_a_transport_error(server: HttpServer) -> None:
    server.routes["POST /pause"] = Reply(500, b"")
    with pytest.raises(TransportError):
        lifecycle(server).pause("abort")


@pytest.mark.parametrize("fails", ["server_state", "http"])
def test_a_disk_that_is_full_does_not_keep_a_tainted_server_from_being_paused(server: HttpServer, fails: str) -> None:
    """Events fail once, as those of a run directory do: with the change of state, or with the call itself."""
    failed: list[str] = []

    def tell(kind: str, **fields: Any) -> None:
        if kind == fails and not failed:
            failed.append(kind)
            raise StorageFailure("events.jsonl cannot be written: No space left on device")

    one = Lifecycle(ControlPlane(server.url, on_exchange=lambda exchange: tell("http")), lambda kind, **fields: None)
    one.found(False, False, "model")
    one._tell = tell
    one.taint("the record does not fit")
    assert failed
    assert server.paths() == ["/pause"]
    assert one.state == "tainted"
    assert one.left == "paused" if fails == "server_state" else "No space left" in one.left


@pytest.mark.parametrize(("status", "restart"), [(500, True), (503, True), (404, False)])
def test_a_server_that_answers_a_pause_with_a_failure_of_its_own_needs_a_restart(
    server: HttpServer, status: int, restart: bool
) -> None:
    server.routes["POST /pause"] = Reply(status, {"error": "EngineCore encountered an issue"})
    one = lifecycle(server)
    one.taint("a worker was killed")
    assert one.remedy.startswith("a restart only") == restart
