"""Judging again a control that only further probes noticed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from oracle.answers import record, shifted

from vst.errors import VerificationError
from vst.oracle.record import Record
from vst.provenance.rejudge import Judge
from vst.verdict import Outcome

WHOLE = record()
STORED: dict[str, Any] = {
    "observed": {"tensors": ["x"], "noticed": True, "more": 2},
    "expected": "noticed",
    "evidence": "record-control-expert_1-more-2.json",
    "reason": "",
}


def judge(**changed: Record) -> Judge:
    """A judge over these records alone: B equals its reference, and the second further set noticed the expert."""
    records = {
        "record-reference.json": WHOLE,
        "record-control-search.json": WHOLE,
        "record-control-expert_1-more-2.json": shifted(WHOLE, 0.5),
        "record-checkpoint-more-2.json": WHOLE,
        **{f"record-{name.replace('_', '-')}.json": one for name, one in changed.items()},
    }
    one = object.__new__(Judge)
    one.floor = 0.0
    one._lane = {}
    one._bundle = SimpleNamespace(files=records, json=lambda name: records[name].to_json())  # type: ignore[assignment]
    return one


def test_an_expert_that_a_further_set_noticed_passes_again() -> None:
    check = judge().again("L3", "control.expert_1", STORED)
    assert check is not None and check.outcome is Outcome.PASS
    assert check.observed["more"] == 2


def test_an_answer_that_is_no_number_notices_nothing_when_it_is_judged_again() -> None:
    broken = judge()
    records: Any = broken._bundle.files
    records["record-control-expert_1-more-2.json"] = shifted(WHOLE, float("nan"))
    check = broken.again("L3", "control.expert_1", STORED)
    assert check is not None and check.outcome is Outcome.INCONCLUSIVE and check.observed["noticed"] is False


def test_further_probes_prove_nothing_where_b_was_not_its_reference() -> None:
    with pytest.raises(VerificationError, match=r"record-control-search.json is not record-reference.json"):
        judge(control_search=shifted(WHOLE, 0.5)).again("L3", "control.expert_1", STORED)


@pytest.mark.parametrize(
    ("family", "accepted", "outcome"),
    [("mtp", 0, Outcome.PASS), ("mtp", 19, Outcome.INCONCLUSIVE), ("norm", 0, Outcome.INCONCLUSIVE)],
)
def test_what_was_drafted_tells_of_the_layers_that_draft_and_of_no_others(
    family: str, accepted: int, outcome: Outcome
) -> None:
    counts = {"found": {"proposed": 40, "accepted": accepted}, "expected": {"proposed": 40, "accepted": 19}}
    observed = {"tensors": 1, "drafted": {**counts, "margin": 0.0}}
    name = f"record-control-{family}.json"
    stored = {"observed": observed, "expected": "noticed", "evidence": name, "reason": ""}
    check = judge(**{f"control_{family}": WHOLE}).again("L3", f"control.{family}", stored)
    assert check is not None and check.outcome is outcome
