from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from load.stories import QUIET, A, B, log, seen, states

from vst.lanes.pause_checks import abort_check, admission_check, declared_for, keep_check, knock, policy_of, wait_check
from vst.load.log import LoadLog
from vst.verdict import Outcome

SETTLE = 0.05
PAUSED = (
    *QUIET,
    {"what": "pausing", "at": 1.0, "mode": "keep"},
    {"what": "paused", "at": 1.1},
    {"what": "resuming", "at": 4.0},
    {"what": "resumed", "at": 4.1},
)
"""A server that holds A and is paused from 1 to 4."""

AROUND = (0.5, 0.7, 0.9, 4.2, 4.3, 4.4)
"""When the tokens of a stream come that the pause froze after its third."""

FROZEN = seen(A, 0.4, 4.4, arrivals=AROUND)
HELD = policy_of("held", False, SETTLE)
ABORTS = policy_of("held", True, SETTLE)


def paused(*answers: Any) -> LoadLog:
    return log(*(replace(one, number=number) for number, one in enumerate(answers)), marks=PAUSED)


def kept(*answers: Any) -> Any:
    return keep_check({"keep": paused(*answers), "keep-cache": paused(FROZEN)}, states(), HELD)


def test_streams_that_were_frozen_and_went_on_unchanged_pass() -> None:
    check = kept(FROZEN, seen(A, 4.2, 4.9))
    assert check.outcome is Outcome.PASS
    assert check.observed["keep"]["frozen"][0]["before"] == check.observed["keep"]["frozen"][0]["after"] == 3


@pytest.mark.parametrize(
    ("tokens", "arrivals", "kind"),
    [
        ((*A[:3], *A[4:]), AROUND[:5], "dropped"),
        ((*A[:3], *A[2:5]), AROUND, "doubled"),
        ((*A[:3], *B[3:]), AROUND, "mixed"),
        (A, (0.5, 0.7, 0.9, 2.0, 4.3, 4.4), "while_paused"),
    ],
)
def test_a_frozen_stream_that_loses_doubles_changes_or_moves_fails(tokens: Any, arrivals: Any, kind: str) -> None:
    """K27: no token lost or doubled, and none that leaves while nothing may."""
    check = kept(seen(tokens, 0.4, 4.4, arrivals=arrivals), FROZEN)
    assert check.outcome is Outcome.FAIL and kind in check.reason
    assert check.evidence == "load-pause-keep.jsonl"


def test_one_log_without_a_frozen_stream_is_inconclusive_whatever_the_other_shows() -> None:
    assert kept(seen(A, 0.1, 0.9)).outcome is Outcome.INCONCLUSIVE


def test_an_answer_beside_the_frozen_streams_that_is_wrong_fails() -> None:
    assert kept(FROZEN, seen(B, 4.2, 4.9)).outcome is Outcome.FAIL


ABORTED = seen(A[:3], 0.4, 1.1, finish="abort", completion_tokens=3)


def test_streams_that_the_pause_aborted_pass_and_what_comes_later_is_whole() -> None:
    check = abort_check(paused(ABORTED, seen(A, 2.0, 4.9, arrivals=(4.2, 4.3, 4.4, 4.5, 4.6, 4.9))), states(), ABORTS)
    assert check.outcome is Outcome.PASS and check.observed["in_flight"] == 1


def test_a_stream_that_survives_a_pause_that_aborts_fails() -> None:
    check = abort_check(paused(ABORTED, FROZEN), states(), ABORTS)
    assert check.outcome is Outcome.FAIL and "the streams [1] went on after the pause" in check.reason


def test_a_stream_that_was_sent_just_before_the_pause_and_was_held_by_it_is_no_survivor() -> None:
    late = seen(A, 0.99, 4.9, arrivals=(4.2, 4.3, 4.4, 4.5, 4.6, 4.9))
    assert abort_check(paused(ABORTED, late), states(), ABORTS).outcome is Outcome.PASS
    assert abort_check(paused(late), states(), ABORTS).outcome is Outcome.INCONCLUSIVE


def test_a_second_pause_counts_like_the_first() -> None:
    again = tuple({**mark, "at": mark["at"] + 10} for mark in PAUSED[len(QUIET) :])
    caught = replace(ABORTED, sent=10.4, ended=11.1, arrivals=tuple(at + 10 for at in ABORTED.arrivals), number=1)
    first = replace(seen(A, 0.1, 0.9), number=0)
    check = abort_check(log(first, caught, marks=(*PAUSED, *again)), states(), ABORTS)
    assert (check.outcome, check.observed["in_flight"]) == (Outcome.PASS, 1)
    kept_then = replace(FROZEN, sent=10.4, ended=14.4, arrivals=tuple(at + 10 for at in AROUND), number=2)
    check = abort_check(log(first, caught, kept_then, marks=(*PAUSED, *again)), states(), ABORTS)
    assert check.outcome is Outcome.FAIL and "[2]" in check.reason


def test_an_aborted_stream_that_was_not_the_start_of_the_whole_one_fails() -> None:
    wrong = seen(B[:3], 0.4, 1.1, finish="abort", completion_tokens=3)
    assert abort_check(paused(wrong), states(), ABORTS).outcome is Outcome.FAIL


def test_a_pause_that_caught_nothing_to_abort_is_inconclusive() -> None:
    assert abort_check(paused(seen(A, 0.1, 0.9)), states(), ABORTS).outcome is Outcome.INCONCLUSIVE


def test_streams_that_ended_before_the_pause_was_acknowledged_pass() -> None:
    assert wait_check(paused(seen(A, 0.4, 1.05)), states(), HELD).outcome is Outcome.PASS


def test_a_pause_that_is_acknowledged_before_the_streams_have_ended_fails() -> None:
    check = wait_check(paused(FROZEN), states(), HELD)
    assert check.outcome is Outcome.FAIL and "acknowledged while the streams [0] were still open" in check.reason


def test_a_pause_that_should_wait_and_aborts_fails() -> None:
    check = wait_check(paused(ABORTED), states(), HELD)
    assert check.outcome is Outcome.FAIL and "aborted_undeclared" in check.reason


def test_a_pause_that_lets_others_in_while_it_waits_fails() -> None:
    marks = [*PAUSED[:2], {"what": "paused", "at": 3.0}, *PAUSED[3:]]
    waited, let_in = seen(A, 0.4, 1.4), seen(A, 1.5, 2.5, number=1)
    check = wait_check(log(waited, let_in, marks=marks), states(), HELD)
    assert check.outcome is Outcome.FAIL and "the requests [1] were sent after the pause" in check.reason
    assert wait_check(log(waited, marks=marks), states(), HELD).outcome is Outcome.PASS


def test_a_pause_that_had_nothing_to_wait_for_is_inconclusive() -> None:
    assert wait_check(paused(seen(A, 0.1, 0.9)), states(), HELD).outcome is Outcome.INCONCLUSIVE


KNOCKS = {
    "held": seen(A, 1.5, 4.9, arrivals=(4.2, 4.3, 4.4, 4.5, 4.6, 4.9)),
    "answered": seen(A, 1.5, 2.9),
    "refused": seen((), 1.5, 1.6, status=503, error="answered 503: paused", closed=False, finish=None),
    "lost": seen((), 1.5, 9.0, status=None, error="no whole answer within 5 s", closed=False, finish=None),
}


@pytest.mark.parametrize("policy", KNOCKS)
def test_a_request_that_knocked_is_named_for_what_became_of_it(policy: str) -> None:
    assert knock(paused(KNOCKS[policy]), states(), SETTLE)["policy"] == policy


@pytest.mark.parametrize("fault", [{}, {"error": "cut", "closed": False}])
def test_a_request_whose_answer_has_begun_before_the_server_serves_was_answered(fault: dict[str, Any]) -> None:
    begun = seen(A, 1.5, 4.9, arrivals=(3.9, 3.95, 4.4, 4.5, 4.6, 4.9), **fault)
    found = knock(paused(begun), states(), SETTLE)
    assert found["policy"] == "answered" and found["text"] == "2 of 6 tokens came then"


def test_a_request_that_was_held_and_answered_wrongly_is_lost() -> None:
    assert knock(paused(seen(B, 1.5, 4.9, arrivals=(4.2,) * 6)), states(), SETTLE)["policy"] == "lost"


def test_a_log_that_says_nothing_of_the_request_lost_it() -> None:
    assert knock(log(marks=PAUSED, sent=1), states(), SETTLE)["policy"] == "lost"


DECLARED = {"keep": "held", "abort": "either", "wait": "refused", "asleep": "held"}


@pytest.mark.parametrize(
    ("name", "policy", "outcome"),
    [
        ("keep", "held", Outcome.PASS),
        ("keep-cache", "refused", Outcome.FAIL),
        ("abort", "held", Outcome.PASS),
        ("abort", "refused", Outcome.PASS),
        ("abort", "answered", Outcome.FAIL),
        ("wait", "held", Outcome.FAIL),
        ("asleep-2", "held", Outcome.PASS),
        ("asleep-1-at-once", "lost", Outcome.FAIL),
    ],
)
def test_the_policy_that_was_seen_must_be_the_declared_one(name: str, policy: str, outcome: Outcome) -> None:
    """K28: held or refused as declared; the policy that was seen is recorded."""
    check = admission_check({name: knock(paused(KNOCKS[policy]), states(), SETTLE)}, DECLARED, 1)
    assert check.outcome is outcome
    assert check.observed[name]["policy"] == policy and check.expected[name] == DECLARED[declared_for(name)]


def test_a_refusal_with_another_status_is_no_refusal() -> None:
    one = {**knock(paused(KNOCKS["refused"]), states(), SETTLE), "status": 500}
    assert admission_check({"abort": one}, DECLARED, 1).outcome is Outcome.FAIL


def test_states_that_were_not_reached_are_inconclusive() -> None:
    one = knock(paused(KNOCKS["held"]), states(), SETTLE)
    check = admission_check({"keep": one}, DECLARED, 4)
    assert check.outcome is Outcome.INCONCLUSIVE and "only 1 of 4" in check.reason
