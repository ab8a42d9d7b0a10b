from __future__ import annotations

from typing import Any

import pytest

from vst.lanes.memory import Nap, memory_check, wanted
from vst.lanes.sleep_checks import idempotent_check, order_check, orders_check, refusals_check, state_check
from vst.server.states import LOOKS, Situation
from vst.verdict import Check, Outcome

S = Situation
STAGES = [S.ASLEEP_1, S.ASLEEP_1_CACHE, S.ASLEEP_1_WEIGHTS, S.ASLEEP_2, S.ASLEEP_2_LOST]
EQUAL = {"equal": True, "first": None, "looks_like": "", "record": "record-x.json"}
OTHER = {"equal": False, "first": {"probe": 1}, "looks_like": "no effect: equals A", "record": "record-x.json"}


def shows(situation: Situation, **instead: Any) -> dict[str, Any]:
    looks = LOOKS[situation]
    level = looks.level if looks.level is not None else 0
    return {"paused": looks.paused, "sleeping": looks.sleeping, "levels": [level], **instead}


def step(text: str, situation: Situation, **instead: Any) -> dict[str, Any]:
    return {"step": text, "after": situation.value, "observed": shows(situation, **instead)}


def chains(*situations: Situation) -> dict[str, Any]:
    return {"sleep": {"steps": [step("move", situation) for situation in situations]}}


HELD = {"asleep-2": {"policy": "held", "text": ""}}


def test_flags_and_gauge_that_fit_at_every_level_and_tag_pass() -> None:
    assert state_check(chains(*STAGES, S.SERVING), HELD).outcome is Outcome.PASS


def test_a_version_that_runs_in_a_partial_wake_has_been_seen_there_too() -> None:
    running = [S.ASLEEP_1, S.AWAKE_1_CACHE, S.AWAKE_1_WEIGHTS, S.ASLEEP_2, S.AWAKE_2_LOST]
    assert state_check(chains(*running), HELD).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        ({"levels": [0]}, "the sleep gauge says 0, expected 1"),
        ({"levels": []}, "the sleep gauge says None, expected 1"),
        ({"levels": [1, 0]}, r"the sleep gauge says \[1, 0\]"),
        ({"sleeping": False}, "/is_sleeping says False"),
        ({"paused": False}, "/is_paused says False"),
    ],
)
def test_a_flag_or_a_gauge_that_lies_fails(instead: dict[str, Any], why: str) -> None:
    import re

    lying = {"sleep": {"steps": [step("sleep(1)", S.ASLEEP_1, **instead)]}}
    check = state_check(lying, HELD)
    assert check.outcome is Outcome.FAIL and re.search(why, check.reason) and check.evidence == "chain-sleep.json"


def test_a_sleeping_server_that_answers_fails() -> None:
    check = state_check(chains(*STAGES), {"asleep-2": {"policy": "answered", "text": "8 tokens"}})
    assert check.outcome is Outcome.FAIL and "answered a request" in check.reason


def test_a_level_that_was_not_reached_is_inconclusive_and_named() -> None:
    check = state_check(chains(*STAGES[:-1]), HELD)
    assert check.outcome is Outcome.INCONCLUSIVE and "not reached: asleep(2, kv_cache), weights lost" in check.reason


ORDERS = ("weights-first", "cache-first")


def test_wake_orders_that_end_at_the_reference_pass() -> None:
    assert orders_check(dict.fromkeys(ORDERS, EQUAL), ORDERS, 0.0).outcome is Outcome.PASS


def test_a_wake_order_that_ends_elsewhere_fails_and_is_named() -> None:
    """K23: both orders must match."""
    check = orders_check({"weights-first": EQUAL, "cache-first": OTHER}, ORDERS, 0.0)
    assert check.outcome is Outcome.FAIL and "woken cache-first: no effect" in check.reason
    assert check.evidence == "record-x.json"


def test_a_wake_order_that_was_not_tried_is_inconclusive() -> None:
    assert orders_check({"weights-first": EQUAL}, ORDERS, 0.0).outcome is Outcome.INCONCLUSIVE


def refusal(sent: int = 0) -> dict[str, Any]:
    return {"step": "resume", "situation": "asleep(2)", "refused": "resume is refused", "sent": sent}


@pytest.mark.parametrize(
    ("refusals", "outcome"),
    [
        ([refusal(), refusal()], Outcome.PASS),
        ([refusal(), refusal(1)], Outcome.FAIL),
        ([refusal()], Outcome.INCONCLUSIVE),
        ([], Outcome.INCONCLUSIVE),
    ],
)
def test_what_must_be_refused_passes_only_when_all_of_it_was_and_nothing_was_sent(
    refusals: list[dict[str, Any]], outcome: Outcome
) -> None:
    assert refusals_check("wake.level2_needs_push", refusals, 2, "only a push leads on").outcome is outcome


CHAIN = {"steps": [step("resume", S.SERVING)]}


@pytest.mark.parametrize(
    ("answer", "load", "outcome"),
    [
        (EQUAL, Outcome.PASS, Outcome.PASS),
        (OTHER, Outcome.PASS, Outcome.FAIL),
        (EQUAL, Outcome.FAIL, Outcome.FAIL),
        (EQUAL, Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE),
    ],
)
def test_a_chain_passes_with_the_reference_at_its_end_and_a_clean_load(
    answer: dict[str, Any], load: Outcome, outcome: Outcome
) -> None:
    assert order_check(CHAIN, answer, Check("load", load, {}), 0.0).outcome is outcome


TWICE = [step("pause(keep)", S.PAUSED), step("pause(keep)", S.PAUSED), step("resume", S.SERVING)]


def test_a_repeated_move_that_changes_nothing_passes() -> None:
    assert idempotent_check({"steps": TWICE}, ("pause(keep)",), EQUAL, 0.0).outcome is Outcome.PASS


def test_a_repeated_move_that_changes_what_the_server_shows_fails() -> None:
    steps = [TWICE[0], {**TWICE[1], "observed": shows(S.PAUSED, sleeping=True)}]
    check = idempotent_check({"steps": steps}, ("pause(keep)",), EQUAL, 0.0)
    assert check.outcome is Outcome.FAIL and "a second pause(keep) changed the server" in check.reason


def test_repeated_moves_that_changed_the_answers_fail() -> None:
    assert idempotent_check({"steps": TWICE}, ("pause(keep)",), OTHER, 0.0).outcome is Outcome.FAIL


def test_a_move_that_was_not_repeated_is_inconclusive() -> None:
    check = idempotent_check({"steps": TWICE}, ("pause(keep)", "resume"), EQUAL, 0.0)
    assert check.outcome is Outcome.INCONCLUSIVE and "not repeated: resume" in check.reason


WEIGHTS = 1000
NAPS = [Nap(1, 5000, 3000, 5000, 10, True), Nap(2, 5000, 3000, 5000, 10, True)]


def memory(naps: list[Nap], declared: str = "memory", source: str | None = "a source") -> Check:
    return memory_check(naps, source, "nothing says where", WEIGHTS, declared, "why")


def test_a_server_that_frees_its_weights_and_gets_them_back_passes() -> None:
    assert memory(NAPS).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("nap", "why"),
    [
        (Nap(2, 5000, 5000, 5000, 0, True), "freed 0 bytes"),
        (Nap(2, 5000, 5100, 5000, 0, False), "freed -100 bytes"),
        (Nap(2, 5000, 4600, 5000, 0, True), "freed 400 bytes of 5000, expected 500 or more"),
        (Nap(2, 5000, 4400, 5000, 400, True), "expected 801 or more (noise 400)"),
        (Nap(1, 5000, 4600, 5000, 0, True), "freed 400 bytes"),
        (Nap(1, 5000, 5000, 5000, 0, False), "freed 0 bytes"),
        (Nap(2, 5000, 3000, 3500, 0, True), "brought back 500 of 2000 bytes, expected 1000"),
        (Nap(2, 5000, 3000, 3400, 0, False), "brought back 400 of 2000 bytes, expected 500"),
    ],
)
def test_a_sleep_that_frees_too_little_or_a_wake_that_brings_too_little_back_fails(nap: Nap, why: str) -> None:
    check = memory([*NAPS, nap])
    assert check.outcome is Outcome.FAIL and why in check.reason


@pytest.mark.parametrize(("tag", "came"), [("kv_cache", 20), ("weights", 499)])
def test_a_tag_whose_wake_brings_nothing_was_not_freed_or_not_restored(tag: str, came: int) -> None:
    nap = Nap(1, 5000, 3000, 5000, 10, True, {"weights": 600, "kv_cache": 600, tag: came})
    check = memory([*NAPS, nap])
    assert check.outcome is Outcome.FAIL and f"wake({tag}) after sleep(1) brought {came} bytes" in check.reason


def test_a_sleep_that_freed_nothing_fails_also_where_the_server_did_not_wake() -> None:
    assert memory([Nap(1, 5000, 5000, None, 0, True)]).outcome is Outcome.FAIL
    assert memory([Nap(1, 5000, 3000, None, 0, True)]).outcome is Outcome.INCONCLUSIVE


def test_level_1_may_keep_its_copy_in_the_memory_that_is_read() -> None:
    assert wanted(1, device=False, weights=WEIGHTS, noise=10) == 21
    assert wanted(1, device=True, weights=WEIGHTS, noise=10) == wanted(2, False, WEIGHTS, 10) == 500


@pytest.mark.parametrize("declared", ["flags", "none"])
def test_a_server_that_is_declared_to_free_nothing_is_not_judged_and_the_reason_is_told(declared: str) -> None:
    check = memory([Nap(2, 5000, 5000, 5000, 0, False)], declared)
    assert check.outcome is Outcome.NOT_APPLICABLE and check.reason.endswith(f"sleep={declared}: why")


def test_memory_that_nobody_can_read_is_inconclusive() -> None:
    check = memory([], source=None)
    assert check.outcome is Outcome.INCONCLUSIVE and check.reason == "nothing says where"


def test_one_level_alone_is_inconclusive() -> None:
    assert memory(NAPS[:1]).outcome is Outcome.INCONCLUSIVE
