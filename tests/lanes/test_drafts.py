"""``draft.acceptance`` from counts: a right target with a stale draft is not PASS."""

from __future__ import annotations

from typing import Any

import pytest

from vst.lanes.drafts import acceptance_check
from vst.server.speculation import Drafted, method, parse_drafted
from vst.verdict import Outcome

METRICS = """\
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 24.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 48.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="tiny"} 2.0
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="tiny"} 1.7e9
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="tiny"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 20.0
"""


def counts(proposed: int, accepted: int) -> dict[str, Any]:
    return Drafted(proposed, accepted).to_json()


def observed(**changes: Any) -> dict[str, Any]:
    fresh = counts(48, 40)
    arrival = {"state": "to B", "found": fresh, "expected": fresh}
    return {
        "method": "draft_model", "declared": True, "wanted": 1, "arrivals": [arrival], "repeats": [fresh, fresh],
        "stale": counts(90, 2), **changes,
    }  # fmt: skip


def arrivals(found: dict[str, Any] | None, expected: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [{"state": "to B", "found": found, "expected": expected}]


def test_counters_are_summed_over_engines_and_nothing_else_is_counted() -> None:
    assert parse_drafted(METRICS) == Drafted(50, 31)
    assert parse_drafted("vllm:num_requests_running 0\n") is None


def test_how_a_server_drafts_is_read_from_its_configuration() -> None:
    assert method({"speculative_config": {"method": "eagle"}}) == "eagle"
    assert method({"speculative_config": None}) is None and method({}) is None
    assert method({"speculative_config": {}}) == "unknown"


def test_the_same_counts_as_a_cold_server_pass() -> None:
    assert acceptance_check(observed(), 0.02).outcome is Outcome.PASS


def test_a_stale_draft_fails_also_when_it_is_only_one_token_off() -> None:
    for found in (counts(90, 2), counts(48, 39), counts(50, 40)):
        check = acceptance_check(observed(arrivals=arrivals(found, counts(48, 40))), 0.02)
        assert check.outcome is Outcome.FAIL and "the draft is stale" in check.reason


def test_where_counts_do_not_repeat_the_shares_may_differ_by_the_margin() -> None:
    noisy = {"repeats": [counts(48, 40), counts(48, 41)]}
    near = observed(**noisy, arrivals=arrivals(counts(480, 404), counts(480, 400)))
    far = observed(**noisy, arrivals=arrivals(counts(480, 360), counts(480, 400)))
    assert acceptance_check(near, 0.02).outcome is Outcome.PASS
    assert acceptance_check(far, 0.02).outcome is Outcome.FAIL


UNDECIDED: dict[str, dict[str, Any]] = {
    "no draft was declared": {"declared": False},
    "could not have been seen": {"stale": counts(48, 40)},
    "no token was drafted": {"arrivals": arrivals(counts(0, 0), counts(0, 0))},
    "nobody counted": {"arrivals": arrivals(None, counts(48, 40))},
    "not judged in every state": {"wanted": 3},
}


@pytest.mark.parametrize("said", UNDECIDED)
def test_what_cannot_be_decided_is_inconclusive(said: str) -> None:
    check = acceptance_check(observed(**UNDECIDED[said]), 0.02)
    assert check.outcome is Outcome.INCONCLUSIVE and said in check.reason


def test_a_method_without_weights_cannot_be_stale_and_needs_no_declaration() -> None:
    assert acceptance_check(observed(method="ngram", declared=False, stale=None), 0.02).outcome is Outcome.PASS
