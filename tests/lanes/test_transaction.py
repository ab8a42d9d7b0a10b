from __future__ import annotations

import pytest

from vst.errors import ConfigError, TransportError, VerificationError, VstError
from vst.lanes.ladder import not_started
from vst.lanes.same_server import RestartedServer
from vst.lanes.transaction import TransactionFailed, answers_check, completed_check, outcome_of, restart_needed
from vst.server.client import HttpFailure, Unreachable
from vst.server.facts import Instance
from vst.server.lock import ServerLocked
from vst.server.states import IllegalMove
from vst.transfer.plan import Sent
from vst.transfer.publisher import PublisherFailed
from vst.verdict import Outcome

SENT = Sent(3, 100, "sha256:1", "blake3:2", 0.1)


def publisher(kind: str) -> PublisherFailed:
    return PublisherFailed("x", "broadcast", kind, True)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (publisher("answer"), Outcome.FAIL),
        (publisher("deadline"), Outcome.FAIL),
        (publisher("stream"), Outcome.FAIL),
        (publisher("died"), Outcome.ERROR),
        (publisher("garbage"), Outcome.ERROR),
        (publisher("unreachable"), Outcome.ERROR),
        (publisher("transport"), Outcome.ERROR),
        (HttpFailure("500", 500, ""), Outcome.FAIL),
        (Unreachable("refused"), Outcome.ERROR),
        (TransportError("the process has ended"), Outcome.ERROR),
        (VerificationError("/is_paused says False"), Outcome.FAIL),
        (IllegalMove("push is refused"), Outcome.FAIL),
        (RestartedServer(Instance("1", None), Instance("2", None)), Outcome.FAIL),
    ],
)
def test_an_answer_that_is_false_fails_and_what_broke_is_an_error(error: VstError, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


def test_a_lane_whose_transactions_were_all_finished_passes() -> None:
    check = completed_check([SENT, SENT], None)
    assert check.outcome is Outcome.PASS and check.observed == {"finished": 2, "bytes": 200}


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR])
def test_a_failed_transaction_says_that_nothing_followed_and_where_its_record_is(outcome: Outcome) -> None:
    """K16 and K17: what the verdict says of them."""
    check = completed_check([SENT], TransactionFailed("phase broadcast: 500", outcome, "weight-update-2.json"))
    assert (check.outcome, check.evidence) == (outcome, "weight-update-2.json")
    assert "phase broadcast: 500; no finish and no resume were sent after it" in check.reason


def test_a_question_without_an_answer_is_an_error() -> None:
    assert answers_check(None).outcome is Outcome.PASS
    assert answers_check(Unreachable("no answer")).outcome is Outcome.ERROR


def test_a_server_that_we_will_not_touch_is_refused_and_one_that_broke_is_an_error() -> None:
    assert not_started(ServerLocked("in use by process 7")).cause is Outcome.REFUSED
    assert not_started(Unreachable("refused")).cause is Outcome.ERROR


def test_a_wrong_configuration_is_no_statement_about_a_server() -> None:
    with pytest.raises(ConfigError):
        not_started(ConfigError("server.api_key_env=X: this environment variable is not set"))


@pytest.mark.parametrize(
    ("phase", "kind", "recovering", "restart"),
    [
        ("join", "deadline", False, "the rendezvous"),
        ("start", "answer", False, "left open"),
        ("start", "answer", True, "left open"),
        ("start", "died", False, "may have been left open"),
        ("broadcast", "answer", False, None),
        ("broadcast", "died", True, None),
        ("broadcast", "answer", True, "keeps parts"),
        ("broadcast", "deadline", False, None),
        ("finish", "answer", False, "left open"),
        ("finish", "deadline", True, "left open"),
    ],
)
def test_a_push_is_no_remedy_where_an_update_may_be_open(
    phase: str, kind: str, recovering: bool, restart: str | None
) -> None:
    found = restart_needed(PublisherFailed("x", phase, kind, True), recovering)
    assert restart in found if restart and found else found is restart


def test_what_failed_without_an_update_leaves_a_push_as_remedy() -> None:
    assert restart_needed(VerificationError("/is_paused says False"), False) is None


def test_a_start_that_one_of_several_servers_refused_may_be_open_on_the_others() -> None:
    refused = PublisherFailed("server 2: 409", "start", "answer", True)
    assert "an earlier one was left open" in str(restart_needed(refused, False, servers=1))
    assert "may have been left open" in str(restart_needed(refused, False, servers=2))
