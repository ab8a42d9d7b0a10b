from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from server.sleeper import Sleeper

from lanes.test_chain import chain
from vst.errors import VstError
from vst.lanes.operate import known_check, legal_check, needs_model, steps_check
from vst.lanes.session import Session
from vst.server.facts import ServerFacts
from vst.server.plan import parse_all
from vst.verdict import Outcome


def test_a_legal_chain_is_said_to_be_and_one_that_may_end_elsewhere_is_warned_of(tmp_path: Path) -> None:
    with chain(tmp_path) as (one, _):
        assert legal_check(one, parse_all(["pause(keep)", "reset", "push", "resume"])).warnings == ()
        check = legal_check(one, parse_all(["sleep(1)", "wake"]))
    assert check.outcome is Outcome.PASS and check.warnings == ("the chain may end with a server that is paused",)


def test_an_illegal_chain_is_refused_with_the_step(tmp_path: Path) -> None:
    with chain(tmp_path) as (one, (server,)):
        check = legal_check(one, parse_all(["sleep(2)", "wake", "resume"]))
        assert server.calls == []
    assert check.outcome is Outcome.REFUSED and "step 2 of 3, wake: wake is refused" in check.reason
    assert check.reason.endswith("no step was made")


@pytest.mark.parametrize(("sleeper", "outcome"), [(Sleeper(), Outcome.PASS), (Sleeper(frozen_flag=True), Outcome.FAIL)])
def test_the_steps_of_a_chain_pass_only_when_each_was_seen(tmp_path: Path, sleeper: Sleeper, outcome: Outcome) -> None:
    steps, failure = parse_all(["reset", "sleep(1)", "wake", "resume"]), None
    with chain(tmp_path, sleeper) as (one, _):
        try:
            one.run(steps)
        except VstError as error:
            failure = error
        check = steps_check(one, steps, failure)
    assert check.outcome is outcome and check.evidence == "chain-test.json"
    assert len(check.observed) == (4 if outcome is Outcome.PASS else 1)


def test_steps_that_were_not_all_made_do_not_pass(tmp_path: Path) -> None:
    with chain(tmp_path) as (one, _):
        one.run(parse_all(["reset"]))
        assert steps_check(one, parse_all(["reset", "resume"]), None).outcome is Outcome.ERROR


@pytest.mark.parametrize(("paused", "sleeping"), [(None, False), (True, None)])
def test_a_server_whose_state_is_not_known_is_refused(paused: bool | None, sleeping: bool | None) -> None:
    facts = cast(ServerFacts, SimpleNamespace(paused=paused, sleeping=sleeping))
    assert known_check(facts).outcome is Outcome.REFUSED


def test_a_server_that_is_paused_or_asleep_may_be_where_a_chain_begins() -> None:
    facts: Any = SimpleNamespace(paused=True, sleeping=True)
    assert known_check(facts).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("kind", "steps", "needed"),
    [
        ("attach", ["pause(keep)", "push", "resume"], False),
        ("attach", ["pause(keep)", "push(model)", "resume"], True),
        ("attach", ["ask"], True),
        ("cpu", ["reset"], True),
    ],
)
def test_checkpoint_a_is_read_only_where_it_is_needed(kind: str, steps: list[str], needed: bool) -> None:
    session: Any = SimpleNamespace(conf=SimpleNamespace(server=SimpleNamespace(kind=kind)))
    assert needs_model(cast(Session, session), parse_all(steps)) is needed
