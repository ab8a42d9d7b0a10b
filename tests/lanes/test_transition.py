from __future__ import annotations

from typing import Any

import pytest
from oracle.answers import record, shifted

from vst.lanes.transition import arrival_check, cold_check, distinct_check, label_check
from vst.verdict import Outcome

EQUAL = {"equal": True, "first": None, "looks_like": "", "record": "record-1.json"}
FIRST = {"probe": 3, "where": "prompt", "position": 5, "observed": -1.0, "expected": -2.0}
MISS = {"equal": False, "first": FIRST, "looks_like": "no effect: equals A", "record": "record-2.json"}


def test_arrivals_that_were_all_equal_pass() -> None:
    assert arrival_check("transition.to_b", [EQUAL, EQUAL], 2, "B", 0.0).outcome is Outcome.PASS


def test_the_first_arrival_that_missed_is_named_with_what_it_looks_like_and_where() -> None:
    """K10 and K11."""
    check = arrival_check("transition.to_b", [EQUAL, MISS], 2, "B", 0.0)
    assert (check.outcome, check.evidence) == (Outcome.FAIL, "record-2.json")
    assert check.reason == (
        "cycle 2: no effect: equals A; first differing probe 3, prompt position 5: observed -1.0, expected -2.0"
    )


def test_a_miss_in_the_last_of_fewer_arrivals_is_still_a_miss() -> None:
    assert arrival_check("x", [MISS], 2, "B", 0.0).outcome is Outcome.FAIL


@pytest.mark.parametrize("results", [[], [EQUAL]])
def test_arrivals_that_could_not_all_be_judged_are_inconclusive(results: list[dict[str, Any]]) -> None:
    check = arrival_check("x", results, 2, "B", 0.0)
    assert check.outcome is Outcome.INCONCLUSIVE and f"only {len(results)} of 2" in check.reason


def label(expected: str, observed: Any, content: bool) -> dict[str, Any]:
    return {"expected": expected, "observed": observed, "content": content}


def test_a_label_that_moved_with_its_content_passes() -> None:
    check = label_check([label("v1", "v1", True), label("v2", "v2", True)])
    assert check.outcome is Outcome.PASS and check.warnings == ()


def test_a_label_without_its_content_fails() -> None:
    check = label_check([label("v1", "v1", True), label("v2", "v2", False)])
    assert check.outcome is Outcome.FAIL and "label without content" in check.reason


@pytest.mark.parametrize("observed", ["v0", None, 3])
def test_content_without_its_label_passes_with_a_warning(observed: Any) -> None:
    check = label_check([label("v1", observed, True)])
    assert check.outcome is Outcome.PASS and f"says {observed}, set was v1" in check.warnings[0]


def test_no_label_at_all_is_inconclusive() -> None:
    assert label_check([]).outcome is Outcome.INCONCLUSIVE


def cache(before: int | None, after: int | None, prefix_caching: bool | None = True) -> dict[str, Any]:
    return {"before": before, "after": after, "prefix_caching": prefix_caching}


def test_a_cache_that_was_seen_warm_and_is_cold_after_the_change_passes() -> None:
    assert cold_check([cache(32, 0), cache(32, 0)], True, None).outcome is Outcome.PASS


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("prefix_caching", [True, False, None])
def test_cached_tokens_of_the_old_weights_fail_whatever_was_declared(
    declared: bool, prefix_caching: bool | None
) -> None:
    """K25."""
    check = cold_check([cache(32, 0), cache(32, 16, prefix_caching)], declared, "x")
    assert check.outcome is Outcome.FAIL and "16 cached tokens of the old weights" in check.reason


@pytest.mark.parametrize(
    "found", [[], [cache(None, None)], [cache(32, None)], [cache(None, 0)], [cache(32, 0), cache(32, None)]]
)
def test_a_server_that_does_not_report_cached_tokens_is_inconclusive(found: list[dict[str, Any]]) -> None:
    """K26."""
    assert cold_check(found, True, None).outcome is Outcome.INCONCLUSIVE


def test_a_cache_that_never_was_seen_warm_proves_nothing() -> None:
    check = cold_check([cache(0, 0)], True, None)
    assert check.outcome is Outcome.INCONCLUSIVE and "could not have been seen" in check.reason


def test_a_server_without_prefix_cache_passes_with_a_warning() -> None:
    check = cold_check([cache(0, 0, False)], True, None)
    assert check.outcome is Outcome.PASS and "prefix caching is off" in check.warnings[0]


def test_cached_tokens_that_were_declared_away_are_not_applicable_with_the_reason() -> None:
    check = cold_check([cache(None, None)], False, "an old proxy")
    assert check.outcome is Outcome.NOT_APPLICABLE and "an old proxy" in check.reason


def test_a_and_b_that_differ_beyond_the_noise_are_distinct() -> None:
    assert distinct_check(record(), shifted(record(), 0.1), 0.01).outcome is Outcome.PASS


def test_probes_that_do_not_tell_b_from_a_are_inconclusive() -> None:
    check = distinct_check(record(), shifted(record(), 0.005), 0.01)
    assert check.outcome is Outcome.INCONCLUSIVE and "probes insensitive" in check.reason


def test_a_cold_b_that_computes_no_numbers_is_no_reference() -> None:
    """Whatever the push does, it would be blamed for what B is."""
    check = distinct_check(record(), shifted(record(), float("nan")), 0.0)
    assert check.outcome is Outcome.INCONCLUSIVE and "look at B" in check.reason
