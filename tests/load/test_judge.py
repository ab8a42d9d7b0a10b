from __future__ import annotations

from dataclasses import replace

import pytest

from load.stories import UPDATED, A, B, log, seen, states
from vst.errors import VerificationError
from vst.load.expected import Expected
from vst.load.findings import Policy
from vst.load.judge import judge, load_check
from vst.verdict import Outcome

STRICT = Policy(refused=(), aborted=False, spanning=False, settle_s=0.1)
CROSSING = seen(A, 0.5, 4.9, number=2, arrivals=(0.9,) * 3 + (4.1,) * 3)
STORY = (seen(A, number=0), seen(B, 4.2, 4.9, number=1), CROSSING)


def test_clean_load_passes_with_what_was_seen_of_each_state() -> None:
    report = judge(log(*STORY, marks=UPDATED), states(), STRICT)
    assert (report.sent, report.kinds, report.claims, report.crossing) == (3, {"whole": 3}, {"A": 2, "B": 1}, 1)
    check = load_check("load.clean", report, ["A", "B"], "load-1.jsonl")
    assert (check.outcome, check.evidence) == (Outcome.PASS, "load-1.jsonl")


def test_first_bad_answer_is_named_with_its_time_and_what_is_wrong() -> None:
    story = (STORY[0], replace(STORY[1], tokens=A, number=1), replace(CROSSING, tokens=A[:3] + B[3:]))
    report = judge(log(*reversed(story), marks=UPDATED), states(), STRICT)
    assert report.bad == 2
    check = load_check("load.clean", report, ["A"], "load-1.jsonl")
    assert check.outcome is Outcome.FAIL
    assert "2 of 3 answers" in check.reason
    assert "request 1 (prompt 0, stream, sent 4.20 s and ended 4.90 s into the load): stale: is A's" in check.reason


def test_request_without_an_answer_and_one_with_two_are_bad() -> None:
    lost = judge(log(*STORY, marks=UPDATED, sent=4), states(), STRICT)
    assert (lost.kinds, lost.first_bad) == ({"lost": 1, "whole": 3}, "request 3: lost: the log says nothing of it")
    twice = judge(log(*STORY, STORY[0], marks=UPDATED, sent=3), states(), STRICT)
    assert twice.bad == 1
    assert "request 0" in (twice.first_bad or "")
    unasked = judge(log(*STORY, marks=UPDATED, sent=2), states(), STRICT)
    assert "request 2" in (unasked.first_bad or "")


def test_load_that_asked_nothing_of_a_state_is_inconclusive() -> None:
    only_a = judge(log(STORY[0], marks=UPDATED), states(), STRICT)
    check = load_check("load.clean", only_a, ["A", "B"], "load-1.jsonl")
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "no whole answer of B" in check.reason
    assert load_check("load.clean", judge(log(), states(), STRICT), [], "x").outcome is Outcome.INCONCLUSIVE


def test_answers_that_parted_at_a_tie_do_not_count_as_seen() -> None:
    tied: dict[str, Expected] = states(0.03)
    tied["A"] = replace(tied["A"], paths=(replace(tied["A"].paths[0], runners=((77, -1.01),) * 6),))
    report = judge(log(seen((77, *A[1:]))), tied, STRICT)
    assert (report.kinds, report.claims) == ({"tie": 1}, {})
    assert load_check("load.clean", report, ["A"], "x").outcome is Outcome.INCONCLUSIVE


def test_load_that_was_not_stopped_in_order_cannot_be_judged() -> None:
    with pytest.raises(VerificationError, match="no end"):
        judge(replace(log(*STORY, marks=UPDATED), sent=None), states(), STRICT)


def test_load_over_a_state_that_nobody_knows_cannot_be_judged() -> None:
    with pytest.raises(VerificationError, match="no expected answers of B"):
        judge(log(*STORY, marks=UPDATED), {"A": states()["A"]}, STRICT)
