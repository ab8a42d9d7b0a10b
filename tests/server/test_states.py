from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vst.server.state_tables import between_marks, tables
from vst.server.states import LOOKS, MOVES, REFUSALS, STATES, TRANSITIONS, IllegalMove, Situation, ends, legal

README = Path(__file__).parents[2] / "README.md"


def test_the_tables_of_the_readme_are_those_of_the_code() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "vst.server.states"], capture_output=True, text=True, check=True, cwd=README.parent
    ).stdout
    assert between_marks(README.read_text()) == printed.strip() == tables()


def test_a_text_without_the_marks_has_no_tables() -> None:
    with pytest.raises(ValueError, match="is not in the text"):
        between_marks("no table")


def test_every_situation_is_reported_as_a_state_and_every_state_occurs() -> None:
    assert {looks.name for looks in LOOKS.values()} == set(STATES)
    assert set(LOOKS) == set(Situation)


def test_each_move_has_one_row_for_each_situation() -> None:
    pairs = [(row.move, before) for row in TRANSITIONS for before in row.before]
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("situation", Situation)
@pytest.mark.parametrize("move", MOVES)
def test_a_move_is_legal_exactly_where_the_table_says_and_a_refusal_says_where(move: str, situation: Situation) -> None:
    rows = [row for row in TRANSITIONS if row.move == move and situation in row.before]
    if rows:
        assert ends(move, situation) == (rows[0].after or (situation,))
        assert (move, situation) not in REFUSALS
        return
    with pytest.raises(IllegalMove, match=f"the server is {situation.value}".replace("(", r"\(").replace(")", r"\)")):
        legal(move, situation)


def test_a_move_that_is_none_names_those_there_are() -> None:
    with pytest.raises(IllegalMove, match="finish is no move: expected one of pause, abort"):
        legal("finish", Situation.SERVING)


def test_only_a_recovery_leads_out_of_a_tainted_server_and_nothing_out_of_a_dead_one() -> None:
    out = {row.move for row in TRANSITIONS if Situation.TAINTED in row.before}
    assert out == {"recover"}
    assert not [row for row in TRANSITIONS if Situation.DEAD in row.before]


def test_no_refusal_speaks_of_a_move_that_is_not_there() -> None:
    assert {move for move, _ in REFUSALS} <= set(MOVES)
