from __future__ import annotations

from typing import Any

import pytest

from vst.selftest.verdicts import checks
from vst.verdict import Check, Outcome


def row(name: str, seed: int, outcome: str | None, faulty: bool = True) -> dict[str, Any]:
    result = {
        "outcome": outcome, "verdict": "FAIL_CLOSED", "failing": ["cache.cold"], "reason": "warm", "seconds": 1.5,
    }  # fmt: skip
    expected = {"checks": ["cache.cold"] if faulty else []}
    return {"name": name, "seed": seed, "expected": expected, "result": result if outcome else None}


def judged(*rows: dict[str, Any]) -> dict[str, Check]:
    return {check.id: check for check in checks({"rows": list(rows)})}


def test_all_rows_as_they_must_be_pass() -> None:
    found = judged(row("kept", 1, "caught"), row("kept", 2, "caught"), row("whole", 1, "passed", False))
    assert {check.outcome for check in found.values()} == {Outcome.PASS}
    assert found["selftest.faults"].observed == "2 of 2 faults caught"
    assert list(found)[3:] == ["fault.kept", "healthy.whole"]


@pytest.mark.parametrize(
    ("bad", "summary", "outcome"),
    [
        (row("kept", 2, "missed"), "selftest.faults", Outcome.FAIL),
        (row("kept", 2, "wrong check"), "selftest.faults", Outcome.FAIL),
        (row("kept", 2, "unsafe"), "selftest.faults", Outcome.FAIL),
        (row("kept", 2, "no verdict"), "selftest.complete", Outcome.ERROR),
        (row("kept", 2, None), "selftest.complete", Outcome.ERROR),
        (row("whole", 2, "false alarm", False), "selftest.healthy", Outcome.FAIL),
    ],
)
def test_one_bad_row_of_one_seed_fails_its_sum_and_its_own_check(
    bad: dict[str, Any], summary: str, outcome: Outcome
) -> None:
    found = judged(row("kept", 1, "caught"), row("whole", 1, "passed", False), bad)
    assert found[summary].outcome is outcome
    own = found[f"{'fault' if bad['expected']['checks'] else 'healthy'}.{bad['name']}"]
    assert own.outcome is outcome
    assert f"{bad['name']}, seed 2" in own.reason


def test_a_table_without_rows_has_no_effective_check() -> None:
    assert {check.outcome for check in judged().values()} == {Outcome.NOT_APPLICABLE}
