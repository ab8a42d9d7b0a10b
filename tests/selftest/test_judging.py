from __future__ import annotations

from typing import Any

import pytest

from vst.selftest.judging import Ran, judge, sent_after_taint
from vst.selftest.row import Row, fault

FAULTY = Row("faulty", "L3", fault("stale"), ("transition.to_b",), "no effect")
HEALTHY = Row("healthy", "L3")
DOUBLE = ("server.dialect", "pass", "", ["scripted double"])


def verdict(code: int, *checks: tuple[Any, ...]) -> dict[str, Any]:
    told = [
        {"id": id, "outcome": outcome, "reason": reason, "warnings": list(warnings[0]) if warnings else []}
        for id, outcome, reason, *warnings in (DOUBLE, *checks)
    ]
    word = "PASS" if code == 0 else "FAIL_CLOSED"
    return {"verdict": word, "exit_code": code, "lanes": [{"lane": "L3", "checks": told}]}


def ran(found: dict[str, Any] | None, code: int | None = None, after: tuple[str, ...] = ()) -> Ran:
    return Ran(found["exit_code"] if code is None and found else code or 0, found, after, 1.0, "row-1")


CAUGHT = verdict(10, ("transition.to_b", "fail", "cycle 1: no effect: equals A"))


@pytest.mark.parametrize(
    ("row", "run", "outcome"),
    [
        (FAULTY, ran(CAUGHT), "caught"),
        (FAULTY, ran(verdict(0)), "missed"),
        (FAULTY, ran(verdict(10, ("cache.cold", "fail", "warm"))), "wrong check"),
        (FAULTY, ran(verdict(10, ("transition.to_b", "fail", "looks like neither"))), "wrong check"),
        (FAULTY, ran(verdict(10, ("transition.to_b", "pass", "no effect"))), "wrong check"),
        (FAULTY, ran(verdict(12, ("transition.to_b", "inconclusive", "no effect was reached"))), "wrong check"),
        (FAULTY, ran(CAUGHT, after=("/resume",)), "unsafe"),
        (FAULTY, ran(None, code=-9), "no verdict"),
        (FAULTY, ran(CAUGHT, code=1), "no verdict"),
        (HEALTHY, ran(verdict(0)), "passed"),
        (HEALTHY, ran(verdict(10, ("cache.cold", "fail", "warm"))), "false alarm"),
        (HEALTHY, ran(verdict(12, ("cache.cold", "inconclusive", "unseen"))), "false alarm"),
        (HEALTHY, ran(None), "no verdict"),
    ],
)
def test_a_row_is_good_only_when_the_right_check_speaks(row: Row, run: Ran, outcome: str) -> None:
    result = judge(row, 1, run)
    assert result.outcome == outcome
    assert result.good is (outcome in ("caught", "passed"))


def test_a_pass_that_does_not_say_what_the_server_was_is_no_pass() -> None:
    found = verdict(0)
    found["lanes"][0]["checks"][0]["warnings"] = []
    assert judge(HEALTHY, 1, ran(found)).outcome == "unsafe"


def test_a_fault_that_must_only_warn_is_missed_without_its_warning() -> None:
    row = Row("warns", "L3", fault("label_kept"), warning="transition.label")
    assert judge(row, 1, ran(verdict(0))).outcome == "missed"
    warned = verdict(0, ("transition.label", "pass", "", ["content without label"]))
    assert judge(row, 1, ran(warned)).outcome == "passed"


def test_only_what_makes_a_given_up_server_serve_counts_against_a_run() -> None:
    events = [
        {"kind": "http", "path": "/resume"},
        {"kind": "server_state", "after": "tainted"},
        {"kind": "http", "path": "/pause"},
        {"kind": "publisher_http", "path": "/finish_weight_update"},
        {"kind": "http", "path": "/resume"},
    ]
    assert sent_after_taint(events) == ("/finish_weight_update", "/resume")
