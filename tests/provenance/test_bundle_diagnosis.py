"""A stored diagnosis is judged again from its records, and what does not follow from them is found."""

from __future__ import annotations

from typing import Any

import pytest
from report.diagnosed import FIRST, WRONG, diagnosed, look

from vst.errors import VerificationError
from vst.lanes.diagnose.judge import checks
from vst.oracle.record import Record
from vst.provenance.rejudge_diagnosis import diagnosis_checks

GOOD = {"record-model-1.json", "record-diagnose-identity.json", "record-diagnose-kept.json"}


def record(name: str) -> Record:
    return FIRST if name in GOOD else WRONG


def test_the_same_checks_come_out() -> None:
    found = diagnosed()
    again = diagnosis_checks(found.to_json(), record, 0.0)
    assert again == {check.id: check for check in checks(found, 0.0)}


def test_a_look_that_its_record_does_not_bear_out_is_judged_by_the_record() -> None:
    stored = diagnosed().to_json()
    stored["looks"][1]["apart"] = look("identity", True).to_json()["apart"]
    assert diagnosis_checks(stored, record, 0.0)["diagnose.to_b"].outcome == "fail"


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"pushes": 9}, "speaks of 9 pushes and has 3"), ({"same_wrong": False}, "says False of the reload's answers")],
)
def test_a_diagnosis_that_contradicts_itself_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(VerificationError, match=why):
        diagnosis_checks(diagnosed(**changes).to_json(), record, 0.0)


def test_a_diagnosis_that_is_gone_is_missed() -> None:
    with pytest.raises(VerificationError, match="is missing or damaged"):
        diagnosis_checks(None, record, 0.0)
