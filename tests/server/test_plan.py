from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vst.errors import ConfigError
from vst.server.plan import outcomes, parse, parse_all, plan_json, read_plan
from vst.server.states import MOVES, IllegalMove, Situation, ends

PAUSED_CHAIN = ["pause(keep)", "reset", "push", "resume"]
SLEEP = ["abort", "reset", "sleep(2)", "wake(weights)", "pause(keep)", "reset"]
OFFLOAD = [*SLEEP, "push", "wake(kv_cache)", "reset", "resume"]
TEXTS = ["pause(keep)", "pause(abort, keep_cache)", "abort", "reset(running)", "sleep(1, keep)", "wake",
         "wake(kv_cache)", "wake(weights, kv_cache)", "push(model)", "resume", "ask"]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_step_is_written_as_it_is_read(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no step"),
        ("finish", "no step"),
        (3, "no step"),
        (None, "no step"),
        ("pause", "takes 1 to 2 arguments, found 0"),
        ("pause(hold)", "'hold' is not one of abort, wait, keep"),
        ("pause(keep", "no step"),
        ("sleep(0)", "'0' is not one of 1, 2"),
        ("sleep(3)", "'3' is not one of 1, 2"),
        ("wake(cache)", "'cache' is not one of weights, kv_cache"),
        ("wake(weights, weights)", "twice"),
        ("push(a, b)", "takes 0 to 1 arguments, found 2"),
        ("resume(now)", "takes 0 to 0 arguments, found 1"),
    ],
)
def test_a_step_that_is_none_says_what_is_understood(text: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")):
        parse(text)


def test_the_two_public_chains_are_legal_and_end_serving() -> None:
    assert outcomes(parse_all(PAUSED_CHAIN)) == {Situation.SERVING}
    assert outcomes(parse_all(OFFLOAD)) == {Situation.SERVING}
    assert outcomes(parse_all(OFFLOAD[1:])) == {Situation.SERVING}


@pytest.mark.parametrize(
    ("steps", "number", "why"),
    [
        (["push"], 1, "pause first"),
        (["pause(keep)", "push", "ask"], 3, "legal from serving"),
        (["sleep(1)", "push"], 2, "wake the weights first"),
        (["sleep(1)", "resume"], 2, "wake weights and cache first"),
        (["sleep(1)", "wake(weights)", "resume"], 3, "wake the cache first"),
        (["sleep(2)", "wake"], 2, "the weights were discarded"),
        (["sleep(2)", "wake(kv_cache)"], 2, "the weights come first"),
        (["sleep(2)", "wake(weights)", "pause(keep)", "wake(kv_cache)"], 4, "only a full push leads on"),
        (["sleep(2)", "wake(weights)", "pause(keep)", "resume"], 4, "only a full push leads on"),
        (["sleep(2)", "sleep(1)"], 2, "legal from serving or paused"),
        (["pause(keep)", "wake"], 2, "may resume by itself"),
        # A version that does not hold work during a partial wake would run into the open update.
        (["sleep(2)", "wake(weights)", "push"], 3, "left the scheduler running"),
        # A server that is wholly awake may be paused or not: what comes next must be legal in both.
        (["sleep(1)", "wake", "ask"], 3, "the server is paused"),
        (["sleep(1)", "wake", "push"], 3, "the server is serving"),
    ],
)
def test_a_plan_is_refused_at_its_first_illegal_step(steps: list[str], number: int, why: str) -> None:
    with pytest.raises(IllegalMove, match=f"step {number} of {len(steps)}.*{why}"):
        outcomes(parse_all(steps))


def test_nothing_leads_on_from_a_server_that_is_tainted_but_a_recovery_that_pushes() -> None:
    for step in (*PAUSED_CHAIN, *OFFLOAD, "ask", "wake"):
        for situation in (Situation.TAINTED, Situation.DEAD, Situation.UPDATING, Situation.UNKNOWN):
            with pytest.raises(IllegalMove):
                outcomes([parse(step)], situation)
    assert outcomes(parse_all(["reset", "push"]), Situation.PAUSED_LOST) == {Situation.PAUSED}
    with pytest.raises(IllegalMove, match="only a full push leads on"):
        outcomes(parse_all(["reset", "resume"]), Situation.PAUSED_LOST)


@settings(deadline=None)  # a machine that is busy is no fault
@given(st.data())
def test_no_legal_walk_asks_resumes_or_wakes_whole_a_server_without_weights(data: st.DataObject) -> None:
    """After a level 2 sleep nothing but a push may come before the server serves, in whatever order."""
    situation, discarded = Situation.SERVING, False
    for _ in range(data.draw(st.integers(1, 15))):
        move = data.draw(st.sampled_from([move for move in MOVES if _is_legal(move, situation)]))
        assert not (discarded and move in ("ask", "resume", "wake", "wake(kv_cache)"))
        situation = data.draw(st.sampled_from(ends(move, situation)))
        discarded = (discarded and move != "push") or move == "sleep(2)"


def _is_legal(move: str, situation: Situation) -> bool:
    try:
        return bool(ends(move, situation))
    except IllegalMove:
        return False


def test_a_plan_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_json(parse_all(OFFLOAD), {"seed": 7})))
    assert [str(step) for step in read_plan(path)] == OFFLOAD


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "vst-plan/2", "steps": []}',
                                     '{"format": "vst-plan/1", "steps": "ask"}', '["ask"]'])  # fmt: skip
def test_a_file_that_is_no_plan_is_a_wrong_configuration(tmp_path: Path, content: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="plan"):
        read_plan(path)


def test_a_plan_file_that_is_not_there_is_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read as a plan"):
        read_plan(tmp_path / "none.json")
