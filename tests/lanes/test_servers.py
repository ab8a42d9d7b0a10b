"""Whether the process that was examined is still the one that answers."""

from __future__ import annotations

from vst.lanes.servers import unchanged_check
from vst.server.facts import Instance
from vst.verdict import Outcome


def test_an_attached_server_without_a_start_time_is_not_proven_to_be_the_same() -> None:
    check = unchanged_check(Instance(None, None), owned_process=False)
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "process_start_time_seconds" in check.reason


def test_a_start_time_that_did_not_move_or_a_process_of_ours_is_the_same_server() -> None:
    assert unchanged_check(Instance("1.7e+09", None), owned_process=False).outcome is Outcome.PASS
    assert unchanged_check(Instance(None, None), owned_process=True).outcome is Outcome.PASS
