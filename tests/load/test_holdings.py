from __future__ import annotations

from typing import Any

import pytest

from load.stories import QUIET, UPDATED
from vst.errors import VerificationError
from vst.load.holdings import history


@pytest.mark.parametrize(
    ("sent", "ended", "claims"),
    [
        (0.0, 0.5, ("A",)),
        (0.0, 1.9, ("A",)),
        (0.0, 2.5, ("A", "B")),
        (0.0, 5.0, ("A", "B")),
        (1.5, 5.0, ("B",)),
        (3.5, 5.0, ("B",)),
        (2.5, 2.6, ("A", "B")),
    ],
)
def test_answer_may_belong_to_what_was_held_while_it_was_open(sent: float, ended: float, claims: Any) -> None:
    assert history(UPDATED).claims(sent, ended) == claims


def test_after_a_push_whose_end_never_came_both_contents_are_possible() -> None:
    told = history([*QUIET, {"what": "push_begin", "at": 2.0, "claim": "B"}])
    assert told.claims(9.0, 9.5) == ("A", "B")


def test_content_that_comes_back_is_held_twice() -> None:
    back = [{"what": "push_begin", "at": 6.0, "claim": "A"}, {"what": "push_end", "at": 7.0, "claim": "A"}]
    told = history([*UPDATED, *back])
    assert told.claims(5.0, 5.5) == ("B",)
    assert told.claims(8.0, 8.5) == ("A",)
    assert told.claims(0.0, 9.0) == ("A", "B")
    assert told.crossed(5.0, 8.0) == 6.0
    assert told.crossed(5.0, 5.5) is told.crossed(8.0, 9.0) is told.crossed(2.5, 5.0) is None


@pytest.mark.parametrize(
    "marks",
    [
        [],
        [{"what": "pausing", "at": 1.0, "mode": "keep"}],
        [{"what": "push_begin", "at": 1.0, "claim": "B"}],
        [*QUIET, {"what": "push_end", "at": 1.0, "claim": "B"}],
        [*QUIET, {"what": "resumed", "at": 1.0}],
        [*QUIET, {"what": "holds", "at": 1.0, "claim": "B"}],
        [*QUIET, {"what": "paused_", "at": 1.0}],
    ],
)
def test_marks_in_an_impossible_order_are_no_history(marks: Any) -> None:
    with pytest.raises(VerificationError):
        history(marks)
