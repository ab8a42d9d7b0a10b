"""Comparing two evaluations, and judging what was found, with and without a repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evals.plans import changed, evaluation, make_plan, other_question, right_answers
from vst.errors import VerificationError
from vst.evals.compare import Comparison, compare
from vst.evals.judging import Floor, Rules, judge_pairs, judge_records, listed, measure_floor, statistics
from vst.evals.store import Evaluation
from vst.verdict import Outcome

PLAN = make_plan(64)
RIGHT = right_answers(PLAN)
A = evaluation(PLAN, RIGHT)
RULES = Rules(0.05, 0.02, 0.8, "flexible")
WIDE = Rules(0.05, 0.2, 0.8, "flexible")
ZERO, NOISY = Floor(64, 0, 0), Floor(64, 9, 2)


def against(changes: dict[int, str | None], left: Evaluation = A) -> Comparison:
    return compare(left, evaluation(PLAN, changed(RIGHT, changes), "B"), "flexible")


def test_equal_evaluations_have_nothing_that_differs() -> None:
    found = against({})
    assert found.counts() == dict.fromkeys(found.counts(), 0) | {"questions": 64}
    assert (found.table.both, found.table.discordant) == (64, 0)


def test_text_answer_and_correctness_are_counted_apart() -> None:
    found = against({0: RIGHT[0] + "!", 1: "#### 1", 2: "nothing", 3: RIGHT[3].replace("it", "that")})
    assert found.counts() == {
        "questions": 64, "failed": 0, "texts_differ": 4, "answers_differ": 2, "correctness_differs": 2,
    }  # fmt: skip
    assert (found.table.lost, found.table.gained) == (2, 0)
    assert [pair.left.index for pair in found.differing] == [0, 1, 2, 3]


def test_equal_texts_of_other_tokens_or_with_another_ending_differ() -> None:
    found = against({})
    other = list(found.right.records)
    other[4] = replace(other[4], tokens=(1, 2))
    other[5] = replace(other[5], finish_reason="length")
    other[6] = replace(other[6], tokens=None)
    moved = Comparison(found.left, replace(found.right, records=tuple(other)), "flexible")
    assert [pair.left.index for pair in moved.differing] == [4, 5]


def test_a_failed_request_is_wrong_and_equals_nothing_not_even_another_failure() -> None:
    failed = evaluation(PLAN, changed(RIGHT, {7: None}))
    found = compare(failed, failed, "flexible")
    assert [pair.left.index for pair in found.differing] == [7]
    assert found.counts()["failed"] == 1 and found.table.both == 63
    assert judge_records(found, ZERO, RULES)[0] is Outcome.FAIL


def test_every_flip_is_listed_with_both_texts() -> None:
    found = against({3: "#### 1", 9: "#### 2"})
    flips = found.to_json()["differing"]
    assert [flip["index"] for flip in flips] == [3, 9]
    assert [flip["right"]["text"] for flip in flips] == ["#### 1", "#### 2"]
    assert [flip["left"]["text"] for flip in flips] == [RIGHT[3], RIGHT[9]]
    assert "2 of 64 records differ (3, 9)" in listed(found) and repr("#### 1") in listed(found)


def test_evaluations_that_are_cut_or_asked_something_else_are_not_compared() -> None:
    with pytest.raises(VerificationError, match="has not come to its end"):
        compare(A, replace(A, complete=False, records=A.records[:5]), "flexible")
    for other in (make_plan(63), make_plan(64, concurrency=4), make_plan(64, style="chat"), other_question(PLAN, 3)):
        with pytest.raises(VerificationError, match="not comparable"):
            compare(A, evaluation(other, ["x"] * len(other.questions)), "flexible")
    records = list(A.records)
    records[2] = replace(records[2], question="sha256:other")
    with pytest.raises(VerificationError, match="position 2"):
        compare(A, replace(A, records=tuple(records)), "flexible")


@pytest.mark.parametrize("floor", [None, ZERO, NOISY])
def test_equal_records_pass_whatever_the_noise_is(floor: Floor | None) -> None:
    assert judge_records(against({}), floor, RULES) == (Outcome.PASS, "")


def test_without_noise_one_character_more_is_a_failure_although_all_answers_are_right() -> None:
    """Case K35: the same accuracy, and other records."""
    outcome, reason = judge_records(against({5: RIGHT[5] + " "}), ZERO, RULES)
    assert outcome is Outcome.FAIL and "1 of 64 records differ (5)" in reason


def test_with_noise_a_significant_change_fails_in_either_direction() -> None:
    lost = {index: "#### 0" for index in range(8)}
    assert judge_records(against(lost), NOISY, RULES)[0] is Outcome.FAIL
    gained = compare(evaluation(PLAN, changed(RIGHT, lost)), A, "flexible")
    outcome, reason = judge_records(gained, NOISY, RULES)
    assert outcome is Outcome.FAIL and "0 lost and 8 gained" in reason and "p = 0.00781" in reason


def test_with_noise_a_sample_too_small_for_the_margin_is_inconclusive_and_never_a_pass() -> None:
    found = against({0: RIGHT[0] + "!"})
    outcome, reason = judge_records(found, NOISY, RULES)
    assert outcome is Outcome.INCONCLUSIVE and "too wide for the margin of 0.02" in reason
    assert judge_records(found, NOISY, WIDE)[0] is Outcome.PASS


def test_a_change_within_the_margin_but_not_shown_to_be_is_inconclusive() -> None:
    outcome, _ = judge_pairs(against({0: "#### 0", 1: "#### 0"}), Rules(0.05, 0.04, 0.8, "flexible"))
    assert outcome is Outcome.INCONCLUSIVE


def test_without_a_repeat_a_difference_is_not_known_to_be_noise() -> None:
    outcome, reason = judge_records(against({0: RIGHT[0] + "!"}), None, WIDE)
    assert outcome is Outcome.INCONCLUSIVE and "no repeat was given" in reason
    assert judge_records(against({index: "#### 0" for index in range(8)}), None, WIDE)[0] is Outcome.FAIL


def test_garbage_on_both_sides_divides_by_nothing_and_is_no_proof_of_quality() -> None:
    babble = evaluation(PLAN, ["?"] * 64)
    other = evaluation(PLAN, ["!"] * 64)
    found = compare(babble, other, "flexible")
    assert judge_records(found, NOISY, RULES)[0] is Outcome.INCONCLUSIVE
    said = statistics(found, NOISY, RULES)
    assert said["accuracy"] == [0.0, 0.0] and said["mcnemar_p"] == 1.0 and said["interval"][0] < 0 < said["interval"][1]


def test_an_evaluation_of_nothing_decides_nothing() -> None:
    nothing = evaluation(make_plan(0), [])
    assert judge_records(compare(nothing, nothing, "flexible"), ZERO, RULES)[0] is Outcome.INCONCLUSIVE


def test_the_floor_is_what_changed_in_a_repeat() -> None:
    floor = measure_floor(against({1: RIGHT[1] + "!", 2: "#### 0"}))
    assert (floor.texts, floor.correctness, floor.churn) == (2, 1, 1 / 64)


def test_the_strict_rule_counts_other_answers_than_the_flexible_one() -> None:
    loose = evaluation(PLAN, changed(RIGHT, {0: f"The answer is {PLAN.questions[0].value}"}))
    assert (loose.right("strict"), loose.right("flexible")) == (63, 64)
    assert compare(A, loose, "strict").table.lost == 1 and compare(A, loose, "flexible").table.lost == 0
