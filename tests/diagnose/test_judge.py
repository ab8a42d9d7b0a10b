from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vst.lanes.diagnose.found import Diagnosis, Look
from vst.lanes.diagnose.judge import checks
from vst.verdict import Check, Outcome


def apart(equal: bool) -> dict[str, Any]:
    return {"equal": equal, "differing": 0 if equal else 7, "positions": 9, "first": None}


def look(what: str, equal: bool) -> Look:
    return Look(what, (), 3, f"record-{what}.json", "record-model-1.json", apart(equal))


def judged(found: Diagnosis) -> dict[str, Check]:
    return {check.id: check for check in checks(found, 0.0)}


TIED = Diagnosis(
    limit=12,
    looks=[look("identity", True), look("to_b", False), look("kept", True), look("reload", False)],
    pushes=4,
    mode="transition",
    why=("tied head",),
    parts=("embedding",),
    tensors=("model.embed_tokens.weight",),
    minimal=True,
    same_wrong=True,
)


def test_a_server_that_arrives_passes_and_needs_no_reload() -> None:
    found = judged(Diagnosis(12, [look("identity", True), look("to_b", True)], 2))
    assert {check.outcome for check in found.values()} == {Outcome.PASS}
    assert "diagnose.reload" not in found


def test_the_smallest_set_is_named_with_why_it_was_looked_at_and_how_many_pushes_it_took() -> None:
    found = judged(TIED)
    assert found["diagnose.tensors"].outcome is Outcome.FAIL
    assert "tied head: model.embed_tokens.weight" in found["diagnose.tensors"].reason
    assert "4 of 12 pushes" in found["diagnose.tensors"].reason
    assert "the very answers of the push" in found["diagnose.reload"].reason
    assert found["diagnose.identity"].outcome is Outcome.PASS
    assert found["diagnose.to_b"].outcome is Outcome.FAIL


def test_answers_that_are_no_numbers_are_told_from_those_that_differ() -> None:
    bad = replace(look("identity", False), apart={**apart(False), "non_finite": True})
    found = judged(replace(TIED, mode="identity", looks=[bad, look("part", True)], same_wrong=None))
    assert "7 of 9 answers are not finite" in found["diagnose.identity"].reason
    assert "7 of 9 positions differ" in judged(TIED)["diagnose.to_b"].reason


def test_identity_that_breaks_is_said_and_b_is_not_judged() -> None:
    found = judged(replace(TIED, mode="identity", looks=[look("identity", False), look("part", True)], same_wrong=None))
    assert found["diagnose.tensors"].reason.startswith("identity alone already breaks; ")
    assert found["diagnose.to_b"].outcome is Outcome.INCONCLUSIVE
    assert found["diagnose.reload"].outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    "found",
    [
        Diagnosis(12, stopped="the publisher died"),
        Diagnosis(12, [look("identity", True)], 1, stopped="the publisher died"),
        replace(TIED, tensors=(), parts=(), minimal=False, stopped="the publisher died"),
    ],
)
def test_a_search_that_ended_early_is_inconclusive_and_never_a_pass(found: Diagnosis) -> None:
    check = judged(found)["diagnose.tensors"]
    assert check.outcome is Outcome.INCONCLUSIVE and "the publisher died" in check.reason


def test_a_set_that_could_not_be_made_smaller_in_time_says_so() -> None:
    found = judged(replace(TIED, minimal=False, stopped="stopped after lane.pushes=4"))
    assert "the smallest set found (stopped after lane.pushes=4)" in found["diagnose.tensors"].reason


def test_a_reload_that_arrives_is_no_fault_of_the_reload() -> None:
    looks = [look("identity", True), look("to_b", False), look("kept", True), look("reload", True)]
    assert judged(replace(TIED, looks=looks, same_wrong=False))["diagnose.reload"].outcome is Outcome.PASS


def test_a_diagnosis_is_the_same_after_it_was_stored() -> None:
    assert Diagnosis.from_json(TIED.to_json()) == TIED
