from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from load.stories import QUIET, UPDATED, A, B, path, seen, states
from vst.load.findings import BAD, GOOD, Finding, Policy, find
from vst.load.holdings import history

STRICT = Policy(refused=(), aborted=False, spanning=False, settle_s=0.1)
QUIET_TOLD, UPDATED_TOLD = history(QUIET), history(UPDATED)


def found(one: Any, told: Any = UPDATED_TOLD, policy: Policy = STRICT, **more: Any) -> Finding:
    return find(one, states(**more), told, policy)


@pytest.mark.parametrize(
    ("one", "kind", "claim"),
    [
        (seen(A), "whole", "A"),
        (seen(A, stream=False), "whole", "A"),
        (seen(B, 4.2, 4.9), "whole", "B"),
        (seen(B, 1.5, 4.9, arrivals=(4.2,) * 6), "whole", "B"),
        (seen(A, 0.5, 1.15), "whole", "A"),
        (seen(A, 0.9, 4.9, arrivals=(0.95,) * 3 + (4.1,) * 3), "whole", "A"),
        (seen(B, 0.9, 4.9, arrivals=(4.2,) * 6), "whole", "B"),
        (seen(B), "stale", "B"),
        (seen(A, 4.2, 4.9), "stale", "A"),
        (seen(A, 1.5, 4.9, arrivals=(4.2,) * 6), "stale", "A"),
        (seen(A[:4]), "truncated", "A"),
        (seen(A[:4], finish="stop"), "truncated", "A"),
        (seen(()), "truncated", "A"),
        (seen((*A, 77)), "overlong", "A"),
        (seen(A[:3] + B[3:], 0.9, 4.9, arrivals=(0.95,) * 3 + (4.1,) * 3), "mixed", "A"),
        (seen(A[:3] + (55, 56, 57), 0.9, 4.9, arrivals=(0.95,) * 3 + (4.1,) * 3), "mixed", "A"),
        (seen(A[:3] + B[3:]), "mixed", "A"),
        (seen(A[:3] + A[2:]), "doubled", "A"),
        (seen((A[:3] + A[2:])[:6]), "doubled", "A"),
        (seen(A[:4] + A[2:]), "doubled", "A"),
        (seen((*A, A[-1])), "doubled", "A"),
        (seen(A[:2] + A[3:]), "dropped", "A"),
        (seen(A[1:]), "dropped", "A"),
        (seen((51, 52, 53, 54, 55, 56)), "foreign", "A"),
        (seen(A, completion_tokens=7), "contradiction", None),
        (seen(A, status=None, error="ConnectError: refused", closed=False), "lost", None),
        (seen(A[:2], error="no whole answer within 1 s", closed=False), "lost", None),
        (seen(A[:2], closed=False), "lost", None),
        (seen((), status=500, error="answered 500: no", closed=False), "error", None),
        (seen((), error="answered 200, but error: no"), "error", None),
        (seen((), status=503, error="answered 503: paused", closed=False), "refused_undeclared", None),
        (seen(A[:2], finish="abort", ended=1.05), "aborted_undeclared", "A"),
    ],
)  # fmt: skip
def test_each_answer_is_named_for_what_it_is(one: Any, kind: str, claim: str | None) -> None:
    finding = found(one)
    assert (finding.kind, finding.claim) == (kind, claim), finding
    assert finding.good == (kind in GOOD)
    assert finding.good or finding.text


def test_every_kind_is_either_good_or_bad() -> None:
    assert not set(GOOD) & set(BAD)


@pytest.mark.parametrize("stream", [True, False])
def test_what_comes_while_the_server_is_paused_and_settled_is_bad(stream: bool) -> None:
    inside = seen(A, 1.5, 2.5, stream=stream)
    finding = found(inside)
    assert finding.kind == "while_paused"
    assert "into the pause" in finding.text


def test_refusal_is_good_only_as_declared_and_only_during_a_pause() -> None:
    policy = replace(STRICT, refused=(503,))
    refused = {"status": 503, "error": "answered 503: paused", "closed": False}
    assert found(seen((), 1.5, 1.6, **refused), policy=policy).kind == "refused"
    assert found(seen((), 0.95, 1.05, **refused), policy=policy).kind == "refused"
    assert found(seen((), 0.1, 0.2, **refused), policy=policy).kind == "refused_undeclared"
    assert found(seen((), 5.1, 5.2, **refused), policy=policy).kind == "refused_undeclared"
    assert found(seen((), 1.5, 1.6, **{**refused, "status": 500}), policy=policy).kind == "error"


def test_abort_is_good_only_as_declared_during_a_pause_and_with_the_right_start() -> None:
    policy = replace(STRICT, aborted=True)
    assert found(seen(A[:3], 0.5, 1.05, finish="abort"), policy=policy).kind == "aborted"
    assert found(seen(A[:3], 0.2, 0.9, finish="abort"), policy=policy).kind == "aborted_undeclared"
    assert not found(seen((11, 12, 77), 0.5, 1.05, finish="abort"), policy=policy).good


def test_stream_that_ends_without_a_token_and_without_a_reason_was_aborted_before_it_began() -> None:
    """So does vLLM 0.32 when all requests are aborted at once."""
    policy = replace(STRICT, aborted=True)
    assert found(seen((), 0.5, 1.05, finish=None), policy=policy).kind == "aborted"
    assert not found(seen((), 0.5, 1.05, finish=None)).good
    assert not found(seen((), 0.2, 0.9, finish=None), policy=policy).good
    assert not found(seen(A[:3], 0.5, 1.05, finish=None), policy=policy).good


def test_answer_that_crosses_an_update_may_go_on_as_anything_only_where_declared() -> None:
    policy = replace(STRICT, spanning=True)
    crossing = seen((*A[:3], 55, 56, 57), 0.9, 4.9, arrivals=(0.95,) * 3 + (4.1,) * 3)
    assert found(crossing).kind == "mixed"
    assert found(crossing, policy=policy).kind == "spanning"
    early = replace(crossing, arrivals=(0.95,) * 4 + (4.1,) * 2)
    assert not found(early, policy=policy).good
    assert not found(replace(crossing, tokens=(51, *crossing.tokens[1:])), policy=policy).good
    assert not found(replace(crossing, tokens=crossing.tokens[:5], completion_tokens=5), policy=policy).good
    assert not found(replace(crossing, sent=0.1, ended=0.9, arrivals=()), policy=policy).good


def test_parting_at_a_near_tie_is_no_fault_and_anywhere_else_it_is() -> None:
    tie = path(A, {2: (77, -1.05)})
    parted = seen((11, 12, 77, 78, 79, 80))
    assert found(parted, QUIET_TOLD, A=tie, spread=0.03).kind == "tie"
    assert found(parted, QUIET_TOLD, A=tie, spread=0.02).kind == "mixed"
    assert not found(seen((11, 12, 76, 78, 79, 80)), QUIET_TOLD, A=tie, spread=0.03).good
    assert not found(seen((11, 12, 77, 78)), QUIET_TOLD, A=tie, spread=0.03).good
