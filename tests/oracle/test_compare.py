from __future__ import annotations

import json
import math
from typing import Any

import pytest

from oracle.answers import answer, record, shifted
from vst.errors import VerificationError
from vst.oracle.compare import difference, looks_like, spread
from vst.oracle.record import Record

B = record()
A = shifted(B, -1.0, claim="A")


def test_equal_records_are_equal() -> None:
    found = difference(record(), B, 0.0)
    assert found.equal and (found.largest, found.positions, found.first) == (0.0, 8, None)


def test_a_floor_of_zero_demands_equality() -> None:
    """K13, with the smallest difference that there is."""
    off = math.nextafter(-2.0, 0.0)
    found = difference(record(answer(), answer(prompt_logprobs=(-1.0, off))), B, 0.0)
    assert not found.equal and found.differing == 1
    assert found.first == {"probe": 1, "where": "prompt", "position": 2, "observed": off, "expected": -2.0}


def test_a_difference_is_judged_by_the_floor() -> None:
    """K13: equal tokens, log-probabilities off by more than the measured spread."""
    assert difference(shifted(B, 0.01), B, 0.0100001).equal
    found = difference(shifted(B, 0.02), B, 0.01)
    assert not found.equal and found.token_changes == 0 and found.differing == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("side", ["observed", "expected"])
def test_what_is_not_finite_is_never_equal_and_can_be_written_to_a_file(value: float, side: str) -> None:
    bad = record(answer(), answer(prompt_logprobs=(value, -2.0)))
    observed, expected = (bad, B) if side == "observed" else (B, bad)
    for floor in (0.0, 1e9, math.inf):
        found = difference(observed, expected, floor)
        assert found.non_finite and not found.equal and not found.noticed
        json.dumps(found.to_json(), allow_nan=False)
    assert not difference(bad, bad, 0.0).equal


def test_another_token_is_a_difference_at_the_place_where_it_is() -> None:
    changed = answer(output=(7, 9), output_logprobs=(-0.5, -0.25), top=(((7, -0.5),), ((9, -0.25),)))
    found = difference(record(answer(), changed), B, 0.0)
    assert found.token_changes == 1 and found.ties == 0
    assert found.first == {
        "probe": 1,
        "where": "output",
        "position": 1,
        "observed": {"token": 9},
        "expected": {"token": 8},
    }


def test_tokens_after_the_first_that_differs_are_not_compared() -> None:
    changed = answer(output=(9, 8), output_logprobs=(-9.0, -9.0), top=(((9, -9.0),), ((8, -9.0),)))
    found = difference(record(changed), record(answer()), 0.5)
    assert (found.positions, found.differing, found.token_changes) == (2, 0, 1)


TIE = (((7, -0.5), (9, -0.501)), ((8, -0.25), (9, -3.0)))


def test_a_near_tie_is_reported_and_decided_by_log_probabilities() -> None:
    left = record(answer(output=(9, 8), output_logprobs=(-0.501, -0.25), top=(((9, -0.5), (7, -0.501)), TIE[1])))
    right = record(answer(top=TIE))
    found = difference(left, right, 0.01)
    assert found.equal and (found.ties, found.token_changes) == (1, 0)
    strict = difference(left, right, 0.0)
    assert not strict.equal and (strict.ties, strict.token_changes) == (0, 1)


@pytest.mark.parametrize("lost", ["left", "right"])
def test_a_token_that_one_side_did_not_rank_is_no_tie(lost: str) -> None:
    other = (((9, -0.5),), TIE[1]) if lost == "left" else (((9, -0.5), (7, -0.501)), TIE[1])
    left = record(answer(output=(9, 8), top=other))
    right = record(answer(top=TIE if lost == "left" else (((7, -0.5),), TIE[1])))
    found = difference(left, right, 0.01)
    assert (found.ties, found.token_changes) == (0, 1)


def test_the_first_difference_is_the_earliest_of_values_and_tokens() -> None:
    token = answer(output=(9, 8), top=(((9, -0.5),), ((8, -0.25),)))
    value = answer(prompt_logprobs=(-1.0, -7.0))
    first = difference(record(token, value), B, 0.0).first
    assert first is not None and (first["probe"], first["where"]) == (0, "output")
    first = difference(record(value, token), B, 0.0).first
    assert first is not None and (first["probe"], first["where"], first["position"]) == (0, "prompt", 2)


@pytest.mark.parametrize(
    "other",
    [
        record(probes="sha256:2"),
        record(answer()),
        record(answer(), answer(prompt=(1, 2, 4))),
        record(answer(), answer(prompt=(1, 2), prompt_logprobs=(-1.0,))),
    ],
)
def test_records_of_other_probes_are_not_compared(other: Record) -> None:
    with pytest.raises(VerificationError, match="different probes"):
        difference(other, B, 0.0)


def test_records_in_which_nothing_can_be_compared_are_not_equal() -> None:
    nothing = Record("B", "sha256:1", ())
    assert not difference(nothing, nothing, 0.0).equal
    empty = record(answer(prompt=(1,), prompt_logprobs=(), output=(), output_logprobs=(), top=()))
    assert not difference(empty, empty, 0.0).equal


def test_a_shorter_answer_is_a_change_of_tokens() -> None:
    short = record(answer(output=(7,), output_logprobs=(-0.5,), top=(((7, -0.5),),)), answer())
    for observed, expected, tokens in ((short, B, (None, 8)), (B, short, (8, None))):
        found = difference(observed, expected, 0.0)
        assert not found.equal and found.first is not None
        assert (found.first["observed"]["token"], found.first["expected"]["token"]) == tokens


def test_the_spread_of_an_unchanged_state_is_the_largest_difference_to_the_first_record() -> None:
    found = spread([B, shifted(B, 0.001), shifted(B, -0.003), B])
    assert found.largest == pytest.approx(0.003)
    assert found.token_changes == 0 and not found.non_finite


def test_a_repeat_with_another_token_is_no_noise() -> None:
    """K14."""
    other = answer(output=(7, 9), top=(((7, -0.5),), ((9, -0.1),)))
    assert spread([B, record(answer(), other)]).token_changes == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_spread_with_a_record_that_is_not_finite_says_so_wherever_it_is(place: int) -> None:
    records = [B, B, B]
    records[place] = record(answer(), answer(output_logprobs=(float("nan"), -0.25)))
    assert spread(records).non_finite


LOOKS: dict[str, tuple[Record, str]] = {
    "exactly like the state before": (A, "no effect: equals A at all 4 telling positions"),
    "like the state before within the floor": (shifted(A, 0.001), "no effect: equals A at all"),
    "half like the state before": (shifted(B, -1.0, probes=(0,)), "equals A in part: at 2 of 4"),
    "half like the state that was expected": (shifted(B, 5.0, probes=(0,)), "equals B in part: at 2 of 4"),
    "like nothing known": (shifted(B, 5.0), "looks like neither A nor B: 4 telling positions, 0 and 0 equal"),
    "not finite": (shifted(B, float("nan")), "non-finite"),
}


@pytest.mark.parametrize("what", LOOKS)
def test_a_miss_says_what_the_server_looks_like(what: str) -> None:
    """K10 and K11."""
    observed, expected = LOOKS[what]
    assert expected in looks_like(observed, B, A, 0.01)


def test_a_difference_is_written_without_numbers_that_json_does_not_have() -> None:
    found: Any = difference(shifted(B, float("inf")), B, 0.0).to_json()
    assert found["largest_difference"] is None and found["first"]["observed"] == "inf"
