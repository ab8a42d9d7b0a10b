"""Families that were not asked for are in the verdict, as not tested."""

from __future__ import annotations

from vst.lanes.controls import left_out
from vst.verdict import Outcome


def test_a_family_that_was_not_asked_for_is_named_and_is_no_pass() -> None:
    check = left_out("norm")
    assert (check.id, check.outcome) == ("control.norm", Outcome.NOT_APPLICABLE)
    assert "lane.controls" in check.reason
