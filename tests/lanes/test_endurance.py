"""Lane L6 judged: cycles, load, memory, faults and recovery, each from what was seen."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from vst.lanes.endurance.arrival import Arrival
from vst.lanes.endurance.checks import clean_check, cycles_check, final_check, memory_check
from vst.lanes.endurance.phases import distribution
from vst.lanes.endurance.recovery import Recovered, recovery_check
from vst.lanes.endurance.trend import limit, trend, trend_check
from vst.lanes.faults.aftermath import Aftermath, fault_check, posts
from vst.load.judge import LoadReport
from vst.verdict import Outcome

MIB = 1 << 20


def seat(equal: bool = True, title: str = "", record: str = "record-x.json") -> dict[str, Any]:
    like = "" if equal else "no effect: equals A"
    return {"seat": title, "equal": equal, "looks_like": like, "first": None, "record": record}


def report(claim: str, bad: str | None = None) -> LoadReport:
    return LoadReport(5, {"whole": 5}, {claim: 5}, 1, 0, bad, int(bad is not None))


def change(cycle: int, role: str, equal: bool = True, bad: str | None = None) -> Arrival:
    claim = "B" if role == "checkpoint" else "A"
    return Arrival(cycle, role, f"endurance-{cycle}-{role}", (seat(equal),), (report(claim, bad),), {}, 100)


def cycles(count: int) -> list[Arrival]:
    first = [Arrival(0, role, "learn", (seat(),)) for role in ("model", "checkpoint", "model")]
    return first + [change(cycle, role) for cycle in range(1, count + 1) for role in ("checkpoint", "model")]


def test_cycles_that_all_arrived_pass_and_one_too_few_does_not() -> None:
    assert cycles_check(cycles(3), 3, 0.0).outcome is Outcome.PASS
    short = cycles_check(cycles(3)[:-1], 3, 0.0)
    assert (short.outcome, short.observed) == (Outcome.INCONCLUSIVE, {"cycles": 2, "changes": 5})
    assert cycles_check([], 1, 0.0).outcome is Outcome.INCONCLUSIVE


def test_the_first_bad_cycle_and_the_server_in_it_are_named() -> None:
    found = cycles(2)
    found.append(Arrival(3, "checkpoint", "x", (seat(), seat(False, "server 2", "record-endurance-3@2.json"))))
    found.append(Arrival(3, "model", "x", (seat(False),)))
    check = cycles_check(found, 3, 0.0)
    assert check.outcome is Outcome.FAIL
    assert check.reason.startswith("cycle 3, to B, server 2: no effect: equals A")
    assert check.evidence == "record-endurance-3@2.json"


def test_what_does_not_arrive_before_the_first_cycle_fails_too() -> None:
    check = cycles_check([Arrival(0, "checkpoint", "learn", (seat(False),))], 3, 0.0)
    assert check.outcome is Outcome.FAIL and check.reason.startswith("before the first cycle, to B: no effect")


def test_one_answer_that_may_not_be_is_named_with_its_cycle() -> None:
    assert clean_check(cycles(2), 2).outcome is Outcome.PASS
    found = [*cycles(1), change(2, "checkpoint", bad="request 4: mixed: …"), change(2, "model")]
    check = clean_check(found, 2)
    assert check.outcome is Outcome.FAIL
    assert "cycle 2, to B, request 4: mixed" in check.reason
    assert check.observed["sent"] == 20 and check.observed["bad"] == 1


def test_a_load_that_missed_a_change_or_a_content_proves_nothing() -> None:
    assert clean_check(cycles(2)[:-1], 2).outcome is Outcome.INCONCLUSIVE
    assert clean_check([], 1).outcome is Outcome.INCONCLUSIVE
    only_a = [replace(one, loads=(report("A"),)) for one in cycles(1) if one.cycle]
    assert clean_check(only_a, 1).outcome is Outcome.INCONCLUSIVE


def noisy(slope: float, count: int = 40, seed: int = 1) -> list[int]:
    """Samples, two a cycle, that grow by ``slope`` bytes a cycle under 1.5 MiB of noise."""
    rng = random.Random(seed)
    return [int(1800 * MIB + slope * number / 2 + rng.gauss(0, 1.5 * MIB)) for number in range(count)]


def test_the_slope_is_that_of_the_leak_and_its_interval_holds_it() -> None:
    exact = trend([1000 + 10 * number for number in range(10)])
    assert (exact.slope, exact.low, exact.high) == (20.0, 20.0, 20.0)
    found = [trend(noisy(3 * MIB, seed=seed)) for seed in range(60)]
    assert sum(one.low <= 3 * MIB <= one.high for one in found) >= 50


@pytest.mark.parametrize(("slope", "outcome"), [(0.0, Outcome.PASS), (8.0 * MIB, Outcome.FAIL), (4 * MIB, None)])
def test_memory_that_grows_beyond_what_is_allowed_fails(slope: float, outcome: Outcome | None) -> None:
    check = trend_check(noisy(slope), 4 * MIB, "resident memory")
    assert check.outcome is (outcome or Outcome.INCONCLUSIVE)
    if outcome is Outcome.FAIL:
        assert "the memory grows: +8" in check.reason and "95% interval" in check.reason


def test_one_jump_of_the_memory_is_no_leak() -> None:
    samples = noisy(0.0)
    jumped = samples[:20] + [one + 60 * MIB for one in samples[20:]]
    assert trend_check(jumped, 4 * MIB, "resident memory").outcome is not Outcome.FAIL


def test_few_samples_or_memory_that_cannot_be_read_is_no_trend() -> None:
    assert trend_check(noisy(0.0, 5), 4 * MIB, "x").outcome is Outcome.INCONCLUSIVE
    check = memory_check([1, None, 3], 4 * MIB, "a server that this run did not start")
    assert check.outcome is Outcome.INCONCLUSIVE and "did not start" in check.reason


def test_a_cycle_may_leave_a_share_of_the_weights_or_what_no_allocator_hides() -> None:
    assert limit(16 << 30, 0.5, 4 * MIB) == 8 << 30
    assert limit(900_000, 0.5, 4 * MIB) == 4 * MIB


def test_the_times_of_a_phase_are_a_distribution() -> None:
    found = distribution([{"push": float(number), "pause": 0.5} for number in range(1, 101)])
    marks = {"min": 1.0, "p25": 25.75, "median": 50.5, "p75": 75.25, "p95": 95.05, "max": 100.0}
    assert found["push"] == {"n": 100, **marks}
    assert found["pause"]["n"] == 100 and found["pause"]["max"] == 0.5
    assert distribution([{"push": 2.0}])["push"]["median"] == 2.0
    assert distribution([]) == {}


TAINTED = {"server": "", "state": "tainted", "left": "paused", "remedy": "a full push", "paused": True, "flag": "True"}
SEEN = Aftermath(
    failure="publisher, phase broadcast: was killed by signal 9",
    outcome="error",
    struck=True,
    seconds=0.4,
    allowed_s=30.0,
    posts=("/pause", "/start_weight_update", "/update_weights", "/pause"),
    recorded="tainted",
    file="weight-update-9.json",
    servers=({**TAINTED, "answered": False},),
)
GONE = {**TAINTED, "state": "dead", "paused": None, "flag": "no answer: Unreachable", "answered": False}


def test_a_push_that_failed_in_time_and_left_nobody_serving_is_what_must_be_seen() -> None:
    check = fault_check("publisher_killed", SEEN)
    assert (check.id, check.outcome, check.evidence) == ("fault.publisher_killed", Outcome.PASS, "weight-update-9.json")
    assert fault_check("server_killed", replace(SEEN, servers=(GONE,))).outcome is Outcome.PASS


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "success": ({"failure": None, "recorded": None}, "ended as a success"),
    "late": ({"seconds": 30.5}, "took 30.5 s, allowed are 30 s"),
    "finish": ({"posts": ("/pause", "/finish_weight_update")}, "sent after the fault: /finish_weight_update"),
    "resume": ({"posts": ("/pause", "/resume")}, "sent after the fault: /resume"),
    "answers": ({"servers": ({**TAINTED, "answered": True},)}, "still serving: the server"),
    "not paused": ({"servers": ({**TAINTED, "paused": False, "answered": False},)}, "still serving: the server"),
    "one of two": (
        {"servers": ({**TAINTED, "answered": False}, {**TAINTED, "server": "server 2", "answered": True})},
        "still serving: server 2",
    ),
    "not tainted": ({"servers": ({**TAINTED, "state": "paused", "answered": False},)}, "known as paused"),
    "not recorded": ({"recorded": "serving"}, "recorded as serving"),
}


@pytest.mark.parametrize("what", WRONG)
def test_each_thing_that_must_not_be_after_a_fault_fails_and_is_said(what: str) -> None:
    changes, words = WRONG[what]
    check = fault_check("hang", replace(SEEN, **changes))
    assert check.outcome is Outcome.FAIL and words in check.reason


def test_a_fault_that_did_not_take_place_proves_nothing() -> None:
    check = fault_check("hang", replace(SEEN, struck=False, seconds=None, failure=None))
    assert check.outcome is Outcome.INCONCLUSIVE and "did not take place" in check.reason


def test_what_was_seen_after_a_fault_is_read_back_whole() -> None:
    assert Aftermath.from_json(json.loads(json.dumps(SEEN.to_json()))) == SEEN


def test_the_calls_of_a_fault_are_those_between_its_two_events() -> None:
    def http(path: str, kind: str = "http", method: str = "POST") -> str:
        return json.dumps({"kind": kind, "method": method, "path": path})

    lines = [
        http("/resume"),
        json.dumps({"kind": "fault", "name": "hang"}),
        http("/pause"),
        http("/start_weight_update", "publisher_http"),
        http("/is_paused", method="GET"),
        json.dumps({"kind": "fault_over", "name": "hang"}),
        http("/finish_weight_update"),
        json.dumps({"kind": "fault", "name": "server_killed"}),
        json.dumps({"kind": "fault_over", "name": "server_killed"}),
    ]
    assert posts(lines, "hang") == ["/pause", "/start_weight_update"]
    assert posts(lines, "server_killed") == []


BACK = Recovered("publisher_killed", "push", "", (seat(),))
AGAIN = Recovered("server_killed", "restart", "its process has ended", (seat(),))


def test_recovery_passes_when_the_answers_came_back_after_every_fault() -> None:
    check = recovery_check([BACK, AGAIN], 2)
    assert check.outcome is Outcome.PASS
    assert check.warnings == ("after server_killed a restart was needed: its process has ended",)


def test_a_recovery_that_is_not_possible_or_not_right_fails_and_says_what_is_needed() -> None:
    none = Recovered("publisher_killed", "none", "restart needed: the update was left open")
    check = recovery_check([none], 2)
    assert check.outcome is Outcome.FAIL and "after publisher_killed: restart needed" in check.reason
    other = Recovered("hang", "push", "", (seat(False, record="record-recovered-hang.json"),))
    assert "record-recovered-hang.json" in recovery_check([BACK, other], 2).reason
    assert recovery_check([Recovered("hang", "push", "")], 1).outcome is Outcome.FAIL


def test_recovery_without_a_fault_is_not_applicable_and_with_one_missing_inconclusive() -> None:
    assert recovery_check([], 0).outcome is Outcome.NOT_APPLICABLE
    assert recovery_check([BACK], 2).outcome is Outcome.INCONCLUSIVE
    assert recovery_check([], 2).outcome is Outcome.INCONCLUSIVE


def test_the_last_content_is_judged_on_every_seat() -> None:
    assert final_check([seat()], "checkpoint", 0.0).outcome is Outcome.PASS
    assert final_check([], "checkpoint", 0.0).outcome is Outcome.INCONCLUSIVE
    bad = final_check([seat(), seat(False, "server 2")], "checkpoint", 0.0)
    assert bad.outcome is Outcome.FAIL and bad.reason.startswith("server 2 no effect")
