from __future__ import annotations

import itertools
import json

import pytest

from vst.verdict import CAUSES, Check, LaneVerdict, Outcome, Verdict, worst


def lane(*outcomes: Outcome) -> LaneVerdict:
    return LaneVerdict("L1", tuple(Check(f"x.{number}", outcome) for number, outcome in enumerate(outcomes)))


P, F, R, N, E, A = (
    Outcome.PASS,
    Outcome.FAIL,
    Outcome.REFUSED,
    Outcome.INCONCLUSIVE,
    Outcome.ERROR,
    Outcome.NOT_APPLICABLE,
)
CODES = {F: 10, R: 11, N: 12, E: 20}


def test_a_lane_passes_only_if_every_check_passed_or_was_declared_away_and_one_passed() -> None:
    for outcomes in itertools.product(Outcome, repeat=3):
        passes = P in outcomes and set(outcomes) <= {P, A}
        assert lane(*outcomes).passed is passes
        assert lane(*outcomes).word == ("PASS" if passes else "FAIL_CLOSED")


@pytest.mark.parametrize("outcomes", [(), (A,), (A, A)])
def test_a_lane_without_an_effective_check_is_no_pass(outcomes: tuple[Outcome, ...]) -> None:
    assert lane(*outcomes).cause is N


def test_the_worst_cause_wins_in_the_order_fail_error_refused_inconclusive() -> None:
    assert CAUSES == (F, E, R, N)
    for one, other in itertools.combinations(CAUSES, 2):
        assert lane(other, P, one).cause is one
        assert Verdict("L3", [lane(other), lane(P), lane(one)]).cause is one


@pytest.mark.parametrize("cause", CODES)
def test_each_cause_has_its_exit_code(cause: Outcome) -> None:
    verdict = Verdict("L3", [lane(P), lane(P, cause)])
    assert (verdict.exit_code, verdict.word, verdict.passed) == (CODES[cause], "FAIL_CLOSED", False)


def test_a_run_in_which_all_lanes_passed_is_a_pass() -> None:
    verdict = Verdict("L3", [lane(P), lane(P, A)])
    assert (verdict.exit_code, verdict.word, verdict.cause, verdict.failing()) == (0, "PASS", None, [])


def test_a_run_without_a_lane_is_no_pass() -> None:
    assert Verdict("L3").exit_code == 12 and not Verdict("L3").passed


@pytest.mark.parametrize("code", [130, 143, 2])
def test_an_interrupted_run_is_no_pass_although_all_its_lanes_passed(code: int) -> None:
    verdict = Verdict("L3", [lane(P)], interrupted=code)
    assert (verdict.exit_code, verdict.word, verdict.passed) == (code, "FAIL_CLOSED", False)


def test_the_failing_checks_are_those_with_a_negative_outcome() -> None:
    assert [check.id for check in lane(P, F, A, N).failing()] == ["x.1", "x.3"]
    assert [check.id for check in Verdict("L3", [lane(F), lane(P)]).failing()] == ["x.0"]


@pytest.mark.parametrize(("codes", "code"), [([], 0), ([0, 0], 0), ([0, 12, 10], 12), ([20, 0], 20), ([0, 143], 143)])
def test_a_sweep_ends_with_the_highest_code(codes: list[int], code: int) -> None:
    assert worst(codes) == code


def test_a_lane_is_written_as_plain_json() -> None:
    data = json.loads(json.dumps(lane(P, R).to_json()))
    assert (data["verdict"], data["cause"]) == ("FAIL_CLOSED", "refused")
    assert data["checks"][1] == {
        "id": "x.1",
        "outcome": "refused",
        "observed": None,
        "expected": None,
        "tolerance": None,
        "reason": "",
        "evidence": None,
        "warnings": [],
    }
