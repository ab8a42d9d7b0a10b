from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from http_server import HttpServer

from server.sleeper import Sleeper
from vst.errors import TransportError, VerificationError
from vst.server.client import ControlPlane
from vst.server.lifecycle import RESETS, Lifecycle
from vst.server.states import IllegalMove, Situation


def over(server: HttpServer) -> Lifecycle:
    one = Lifecycle(ControlPlane(server.url), lambda kind, **fields: None)
    one.found(False, False, "model")
    return one


def push(one: Lifecycle, what: str) -> None:
    one.begin_push(what)
    one.end_push(what)


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("resumes", [True, False])
def test_the_whole_chain_leads_a_server_of_any_version_back_to_serving(holds: bool, resumes: bool) -> None:
    with Sleeper(holds=holds, resumes=resumes).serve() as server:
        one = over(server)
        one.abort()
        one.reset_caches()
        one.sleep(2)
        assert (one.state, one.asleep, one.verified) == ("asleep", ("weights", "kv_cache"), False)
        assert one.holds.startswith("nothing")
        one.wake(["weights"])
        assert one.situation is (Situation.ASLEEP_2_LOST if holds else Situation.AWAKE_2_LOST)
        one.pause("keep")
        one.reset_caches()
        push(one, "checkpoint")
        assert one.situation is Situation.ASLEEP_2_CACHE
        one.wake(["kv_cache"])
        assert one.state == ("serving" if resumes else "paused")
        one.reset_caches()
        one.resume()
        assert (one.state, one.holds, one.verified, one.mode) == ("serving", "checkpoint", False, None)
    sent = ["/sleep", "/wake_up", "/pause", *RESETS, "/wake_up", *RESETS, "/resume"]
    assert server.paths() == ["/abort_requests", *RESETS, *sent]


ORDERS = ((("weights",), ("kv_cache",)), (("kv_cache",), ("weights",)), ((),))


@pytest.mark.parametrize("order", ORDERS)
def test_every_wake_order_of_level_1_leads_to_a_server_that_keeps_what_it_holds(order: Any) -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.sleep(1)
        for tags in order:
            one.wake(tags)
        assert (one.state, one.holds, one.asleep) == ("serving", "model", ())


ILLEGAL_LEVEL_2: dict[str, Callable[[Lifecycle], Any]] = {
    "wake": lambda one: one.wake(),
    "wake(kv_cache)": lambda one: one.wake(["kv_cache"]),
    "resume": lambda one: one.resume(),
    "ask": lambda one: one.ask(),
    "push": lambda one: one.begin_push("checkpoint"),
    "sleep(1)": lambda one: one.sleep(1),
}


@pytest.mark.parametrize("move", ILLEGAL_LEVEL_2)
def test_after_level_2_nothing_but_the_way_to_a_push_is_sent(move: str) -> None:
    """K22: the model of the states refuses what would let a server without weights answer."""
    with Sleeper().serve() as server:
        one = over(server)
        one.sleep(2)
        before = len(server.calls)
        with pytest.raises(IllegalMove, match="is refused"):
            ILLEGAL_LEVEL_2[move](one)
        assert len(server.calls) == before and one.state == "asleep"


@pytest.mark.parametrize("move", ["wake", "wake(kv_cache)", "resume", "ask"])
def test_awake_weights_that_were_discarded_do_not_lead_on_either(move: str) -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.sleep(2)
        one.wake(["weights"])
        before = len(server.calls)
        with pytest.raises(IllegalMove):
            ILLEGAL_LEVEL_2[move](one)
        assert len(server.calls) == before


def test_a_resume_before_the_cache_is_awake_is_refused_and_not_sent() -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.sleep(1)
        one.wake(["weights"])
        with pytest.raises(IllegalMove, match="wake the cache first: to resume without it is a crash"):
            one.resume()
        assert "/resume" not in server.paths()


@pytest.mark.parametrize(
    ("sleeper", "why"),
    [
        (Sleeper(frozen_flag=True), "/is_paused says False, expected True"),
        (Sleeper(gauge=False), "the sleep gauge says None, expected 1"),
    ],
)
def test_a_sleep_is_not_believed_without_both_flags_and_the_gauge(sleeper: Sleeper, why: str) -> None:
    with sleeper.serve() as server, pytest.raises(VerificationError, match=why):
        over(server).sleep(1)


def test_the_gauges_of_all_engines_are_read() -> None:
    with Sleeper(engines=2).serve() as server:
        assert over(server).sleep(1).levels == (1, 1)


def test_engines_that_disagree_on_their_sleep_are_not_believed() -> None:
    sleeper = Sleeper()
    routes = sleeper.routes()
    other = Sleeper().metrics().replace('engine="0"', 'engine="1"')
    routes["GET /metrics"] = lambda call: sleeper.metrics() + other
    with HttpServer(routes) as server, pytest.raises(VerificationError, match=r"gauge says \[1, 0\], expected 1"):
        over(server).sleep(1)


def test_a_server_that_sleeps_at_no_level_is_neither_awake_nor_asleep() -> None:
    sleeper = Sleeper()
    with sleeper.serve() as server:
        one = over(server)
        sleeper.level = 3
        with pytest.raises(VerificationError, match="gauge says -1, expected 0"):
            one.observe()


def test_repeated_moves_lead_nowhere_else() -> None:
    with Sleeper().serve() as server:
        one = over(server)
        for move, state in (
            (lambda: one.pause("keep"), "paused"),
            (one.reset_caches, "paused"),
            (one.resume, "serving"),
            (lambda: one.sleep(1), "asleep"),
            (one.wake, "serving"),
        ):
            move()
            move()
            assert one.state == state
            one.observe()


def test_a_failed_push_is_recovered_only_by_a_push_and_shown_tainted_until_it_is_verified() -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.pause("keep")
        one.begin_push("checkpoint")
        one.taint("the publisher died")
        assert one.remedy == "a full push that verifies, or a restart"
        one.begin_recovery()
        with pytest.raises(IllegalMove, match="only a full push leads on"):
            one.resume()
        one.reset_caches()
        push(one, "checkpoint")
        one.reset_caches()
        one.resume()
        assert (one.state, one.verified) == ("tainted", False)
        one.verify()
        assert (one.state, one.holds, one.verified) == ("serving", "checkpoint", True)


def test_a_recovery_that_fails_leaves_the_server_tainted_and_paused() -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.taint("first")
        one.begin_recovery()
        push(one, "model")
        one.resume()
        one.taint("the record differs")
        assert (one.state, one.left, one.recovering) == ("tainted", "paused", False)


def test_a_server_that_failed_asleep_with_its_weights_awake_is_recovered_there() -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.sleep(2)
        one.wake(["weights"])
        one.begin_push("checkpoint")
        one.taint("cut")
        one.begin_recovery()
        assert one.situation is Situation.ASLEEP_2_LOST
        push(one, "checkpoint")
        one.wake()
        one.verify()
        assert one.state == "serving"


def test_where_an_update_was_left_open_only_a_restart_is_offered_and_nothing_is_sent() -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.pause("keep")
        one.begin_push("checkpoint")
        one.taint("the finish failed", restart="the update was left open")
        before = len(server.calls)
        with pytest.raises(IllegalMove, match="a restart only: the update was left open"):
            one.begin_recovery()
        assert len(server.calls) == before


def test_a_server_that_failed_while_it_was_put_to_sleep_is_not_recovered() -> None:
    with HttpServer({**Sleeper().routes(), "POST /sleep": b"cut"}) as server:
        one = over(server)
        with pytest.raises((TransportError, VerificationError)):
            one.sleep(1)
        one.taint("the sleep failed")
        with pytest.raises(IllegalMove, match="what memory it has is not known"):
            one.begin_recovery()


def test_a_recovery_is_not_begun_on_a_server_that_sleeps_behind_our_back() -> None:
    sleeper = Sleeper()
    with sleeper.serve() as server:
        one = over(server)
        one.taint("broken")
        sleeper.level = 1
        with pytest.raises(VerificationError, match="cannot be recovered by a push: the sleep gauge says 1"):
            one.begin_recovery()


def test_a_server_that_is_not_tainted_is_not_recovered() -> None:
    with Sleeper().serve() as server, pytest.raises(IllegalMove, match="recover is refused: the server is serving"):
        over(server).begin_recovery()


def test_an_open_update_is_not_asked_for_its_state() -> None:
    with Sleeper().serve() as server:
        one = over(server)
        one.pause("keep")
        one.begin_push("checkpoint")
        with pytest.raises(IllegalMove, match="while an update is open"):
            one.observe()
