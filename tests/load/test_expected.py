from __future__ import annotations

import json
from dataclasses import replace

import pytest

from load.stories import WORK, A, B, seen
from vst.errors import VerificationError
from vst.load.expected import Expected, Path, grid, learn
from vst.load.seen import Seen


def moved(number: int, by: float, tokens: tuple[int, ...] = A) -> Seen:
    runners = ((99, -6.0), (77, -1.04), *((99, -6.0),) * 4)
    return replace(seen(tokens), number=number, logprobs=(-1.0 + by,) * 6, runners=runners)


def test_repeats_of_an_undisturbed_state_give_its_answers_and_their_spread() -> None:
    known = learn("A", WORK, [moved(0, 0.0), moved(1, 0.02), moved(2, -0.01)])
    assert (known.claim, known.repeats, known.paths[0].tokens) == ("A", 3, A)
    assert known.spread == pytest.approx(0.02)
    assert Expected.from_json(json.loads(json.dumps(known.to_json()))) == known


def test_repeat_that_parts_at_a_near_tie_is_the_same_state() -> None:
    parted = moved(1, 0.02, (11, 77, 78, 79, 80, 81))
    assert learn("A", WORK, [moved(0, 0.0), parted]).paths[0].tokens == A


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (moved(1, 0.0, B), "does not repeat"),
        (moved(1, 0.001, (11, 77, 78, 79, 80, 81)), "does not repeat"),
        (replace(moved(1, 0.0), error="answered 503: no"), "answered 503"),
        (replace(moved(1, 0.0), closed=False), "not closed"),
        (replace(moved(1, 0.0), finish="stop"), "finish reason 'stop'"),
        (replace(moved(1, 0.0), tokens=A[:5]), "5 tokens"),
        (replace(moved(1, 0.0), completion_tokens=5), "says 5 completion tokens and holds 6"),
    ],
)
def test_state_that_does_not_answer_alike_is_no_reference(bad: Seen, told: str) -> None:
    with pytest.raises(VerificationError, match=told):
        learn("A", WORK, [moved(0, 0.0), bad])


def test_one_answer_to_a_prompt_is_not_enough() -> None:
    with pytest.raises(VerificationError, match="answered 1 time"):
        learn("A", WORK, [moved(0, 0.0)])


def test_leads_on_a_grid_let_neighbours_on_it_change_places() -> None:
    """Log-probabilities from bfloat16 logits: what leads by one step may trail by one when it is computed otherwise."""
    leads = [1, 40, 7, 12, 3, 90, 5, 33, 2, 18, 64, 4, 9, 27, 6, 50]
    tokens = tuple(range(100, 116))
    runners = tuple((200 + n, -1.0 - lead / 64) for n, lead in enumerate(leads))
    on_grid = Path(tokens, (-1.0,) * 16, runners)
    assert grid([on_grid]) == 1 / 64
    assert Expected("A", (on_grid,), 0.0, 3).window == 2 / 64
    off = Path(tokens, (-1.0,) * 16, ((200, -1.0171), *runners[1:]))
    assert grid([off]) == grid([Path(tokens[:8], (-1.0,) * 8, runners[:8])]) == grid([]) == 0.0
