from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from oracle.answers import record, shifted

from vst.lanes import expert_search
from vst.lanes.expert_search import file_of, further, search
from vst.lanes.session import Session
from vst.oracle.probes import make_probes
from vst.oracle.record import Record


def session(search: int = 3) -> Session:
    """A session with its probes and nothing that could be asked."""
    oracle = SimpleNamespace(probes=4, min_tokens=2, search=search)
    conf: Any = SimpleNamespace(oracle=oracle)
    nothing: Any = None
    seats: Any = ("a seat",)
    return Session(conf, nothing, nothing, seats=seats, probes=make_probes(50, 4, 2, 9, 1, 5, 7), floor=0.0)


def test_further_sets_are_as_long_as_the_first_and_ask_other_tokens() -> None:
    one = session()
    first, more = one.need("probes"), further(one)
    assert [[len(prompt) for prompt in probes.prompts] for probes in more] == [[len(p) for p in first.prompts]] * 3
    assert len({probes.digest for probes in (first, *more)}) == 4
    assert further(session(0)) == []


@pytest.mark.parametrize(
    ("seen_by", "number"), [((False, True, True), 2), ((True, False, False), 1), ((False, False, False), None)]
)
def test_the_first_set_that_notices_an_expert_is_named(
    monkeypatch: pytest.MonkeyPatch, seen_by: tuple[bool, ...], number: int | None
) -> None:
    whole = record()
    monkeypatch.setattr(expert_search, "push_with_draft", lambda session, push: [])
    monkeypatch.setattr(expert_search, "take", lambda *words: whole)
    unseen = {"expert_1": [shifted(whole, 0.5) if seen else whole for seen in seen_by]}
    found = search(session(), whole, unseen, [])
    assert (found["expert_1"].number if found else None) == number


def test_nothing_is_concluded_where_b_does_not_equal_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Record = record()
    monkeypatch.setattr(expert_search, "push_with_draft", lambda session, push: [])
    monkeypatch.setattr(expert_search, "take", lambda *words: shifted(whole, 0.1))
    assert search(session(), whole, {"expert_1": [shifted(whole, 0.5)] * 3}, []) == {}


def test_the_files_of_a_further_set_are_numbered() -> None:
    assert file_of("control-expert_1", 2) == "control-expert_1-more-2"
