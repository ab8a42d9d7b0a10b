from __future__ import annotations

from dataclasses import replace

import pytest

from load.stories import UPDATED, A, B, log, seen, states
from vst.load.findings import Policy
from vst.load.kept import kept_check, kept_streams
from vst.load.seen import Seen
from vst.verdict import Check, Outcome

PAUSED = tuple(mark for mark in UPDATED if not str(mark["what"]).startswith("push"))
POLICY = Policy(refused=(), aborted=False, spanning=False, settle_s=0.1)
FROZEN = seen(A, 0.5, 4.9, arrivals=(0.9,) * 3 + (4.1,) * 3)


def judged(*streams: Seen) -> Check:
    return kept_check("pause.keep", kept_streams(log(*streams, marks=PAUSED), states(), POLICY), "load-1.jsonl")


def test_stream_that_froze_and_went_on_as_if_nothing_had_been_passes() -> None:
    check = judged(FROZEN)
    assert check.outcome is Outcome.PASS
    assert check.observed == [
        {"number": 0, "before": 3, "during": 0, "after": 3, "frozen_s": 2.9, "kind": "whole", "fault": None}
    ]


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (replace(FROZEN, tokens=A[:3] + A[4:], completion_tokens=5), "dropped"),
        (replace(FROZEN, tokens=A[:3] + A[2:5]), "doubled"),
        (replace(FROZEN, tokens=A[:3] + B[3:]), "mixed"),
        (replace(FROZEN, tokens=A[:3], completion_tokens=3), "truncated"),
        (replace(FROZEN, tokens=A[:3], closed=False, error="no whole answer within 9 s"), "lost"),
        (replace(FROZEN, arrivals=(0.9,) * 3 + (2.5,) + (4.1,) * 2), "while_paused"),
    ],
)
def test_stream_that_a_pause_harmed_fails_with_where_it_was(stream: Seen, told: str) -> None:
    check = judged(FROZEN, replace(stream, number=1))
    assert check.outcome is Outcome.FAIL
    assert check.reason.startswith("stream 1, paused after 3 tokens for 2.9 s: " + told)


@pytest.mark.parametrize("stream", [seen(A, 0.1, 0.9), seen(A, 4.2, 4.9), seen(A, 0.5, 4.9, stream=False)])
def test_pause_that_caught_no_stream_in_the_middle_is_inconclusive(stream: Seen) -> None:
    assert judged(stream).outcome is Outcome.INCONCLUSIVE


def test_stream_that_came_whole_before_the_pause_proves_nothing() -> None:
    assert judged(replace(FROZEN, arrivals=(0.9,) * 6)).outcome is Outcome.INCONCLUSIVE
