from __future__ import annotations

from typing import Any

import pytest
from oracle.answers import record, shifted

from vst.lanes.identity import EMPTY, record_check, weights_check
from vst.oracle.compare import difference
from vst.verdict import Outcome

ONE, TWO = "1" * 64, "2" * 64
SAME = difference(record(), record(), 0.0)
MOVED = difference(shifted(record(), 0.1), record(), 0.0)


def test_identities_that_moved_nothing_pass() -> None:
    assert record_check([SAME, SAME], 2, 0.0).outcome is Outcome.PASS


def test_an_identity_that_moved_an_answer_fails_and_names_its_record() -> None:
    check = record_check([SAME, MOVED], 2, 0.0)
    assert check.outcome is Outcome.FAIL and check.evidence == "record-identity-2.json"
    assert "changed the answers at 4 of 8 positions" in check.reason


def test_an_identity_after_which_the_server_computes_no_numbers_fails_and_says_so() -> None:
    check = record_check([SAME, difference(shifted(record(), float("nan")), record(), 0.0)], 2, 0.0)
    assert check.outcome is Outcome.FAIL and "left answers that are not finite" in check.reason


@pytest.mark.parametrize("done", [[], [SAME]])
def test_identities_that_could_not_all_be_taken_are_inconclusive(done: list[Any]) -> None:
    check = record_check(done, 2, 0.0)
    assert check.outcome is Outcome.INCONCLUSIVE and f"only {len(done)} of 2" in check.reason


def test_unchanged_digests_that_say_something_are_proof() -> None:
    before = {"a": ONE, "b": TWO, "c": EMPTY}
    check = weights_check(before, dict(before), True, None)
    assert check.outcome is Outcome.PASS and check.observed == "2 of 3 digests say something"


@pytest.mark.parametrize(
    "before",
    [
        {"a": EMPTY, "b": EMPTY, "c": ONE},
        {"a": EMPTY, "b": ONE},
        {"a": f"sha256:{EMPTY}"},
        {"a": "", "b": "", "c": ONE},
        {"a": None, "b": [], "c": 3},
        {},
    ],
)
def test_digests_that_mostly_say_nothing_are_no_proof(before: dict[str, Any]) -> None:
    check = weights_check(before, dict(before), True, None)
    assert check.outcome is Outcome.INCONCLUSIVE and "no proof" in check.reason


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("after", [{"a": TWO, "b": TWO}, {"b": TWO}, {"a": EMPTY, "b": TWO}])
def test_a_digest_that_moved_fails_also_where_digests_were_declared_away(declared: bool, after: dict[str, str]) -> None:
    check = weights_check({"a": ONE, "b": TWO}, after, declared, "cpu")
    assert check.outcome is Outcome.FAIL and "['a']" in check.reason


def test_digests_that_were_declared_away_are_not_applicable_with_the_reason() -> None:
    check = weights_check(None, None, False, "the CPU build repacks")
    assert check.outcome is Outcome.NOT_APPLICABLE and "the CPU build repacks" in check.reason
    assert "no reason given" in weights_check(None, None, False, None).reason


@pytest.mark.parametrize(("before", "after"), [(None, None), ({"a": ONE}, None), (None, {"a": ONE})])
def test_digests_that_were_promised_and_not_given_are_inconclusive(before: Any, after: Any) -> None:
    assert weights_check(before, after, True, None).outcome is Outcome.INCONCLUSIVE
