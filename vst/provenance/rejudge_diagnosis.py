"""Judging a diagnosis again: every look is compared anew from its records, and the checks follow from the looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vst.errors import VerificationError
from vst.lanes.diagnose.found import Diagnosis
from vst.lanes.diagnose.judge import checks
from vst.oracle.compare import difference
from vst.oracle.record import Record
from vst.verdict import Check


def diagnosis_checks(
    stored: Mapping[str, Any] | None, record: Callable[[str], Record], floor: float
) -> dict[str, Check]:
    """The checks of lane ``diagnose`` by id; VerificationError where the stored diagnosis contradicts itself.

    ``record`` reads a record of the run by its file name.
    """
    if stored is None:
        raise VerificationError("diagnosis.json is missing or damaged")
    found = Diagnosis.from_json(stored)
    found.looks = [
        replace(look, apart=difference(record(look.record), record(look.expected), floor).to_json())
        for look in found.looks
    ]
    made = sum(look.what not in ("restart", "reload") for look in found.looks)
    if made not in (found.pushes, found.pushes - 1):
        raise VerificationError(f"diagnosis.json speaks of {found.pushes} pushes and has {made} looks at pushes")
    _expect_same_wrong(found, record)
    return {check.id: check for check in checks(found, floor)}


def _expect_same_wrong(found: Diagnosis, record: Callable[[str], Record]) -> None:
    reload, push = found.last("reload"), found.last("identity" if found.mode == "identity" else "to_b")
    if reload is None or push is None:
        return
    same = not reload.equal and record(reload.record).same_answers(record(push.record))
    if same is not found.same_wrong:
        raise VerificationError(f"diagnosis.json says {found.same_wrong} of the reload's answers, the records {same}")
