"""Lane L6 and several servers against the scripted server, which can be made to fail in the cycle that is wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endurance.alone import Climbed, climb

LEARNING = 3


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def fault(**fields: Any) -> str:
    return f"server.faults=['{json.dumps(fields)}']"


@pytest.fixture(scope="module")
def healthy(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Climbed:
    """Two servers, of which the last is killed in the middle of an update after another update was refused."""
    some = "endurance.faults=[update_refused,server_killed]"
    out = tmp_path_factory.mktemp("healthy") / "run"
    return climb(cache, out, "server=scripted", "server.replicas=2", some)


def test_two_servers_go_through_cycles_and_come_back_from_every_fault(healthy: Climbed) -> None:
    assert healthy.code == 0, healthy.out
    assert healthy.check("cycles.all")["observed"] == {"cycles": 3, "changes": 6}
    assert {one["seat"] for one in healthy.check("replicas.each")["observed"]} == {"server 1", "server 2"}
    load = healthy.check("load.clean")["observed"]
    assert load["bad"] == 0 and load["sent"] == sum(load["kinds"].values())
    ways = {one["fault"]: one["way"] for one in healthy.check("recovery.full_push")["observed"]}
    assert ways == {"update_refused": "push", "server_killed": "restart"}


def test_a_server_that_is_killed_leaves_the_other_one_paused_and_is_known_to_be_dead(healthy: Climbed) -> None:
    one, other = healthy.check("fault.server_killed")["observed"]["servers"]
    assert (one["server"], one["state"], one["paused"], one["answered"]) == ("server 1", "tainted", True, False)
    assert (other["server"], other["state"], other["paused"]) == ("server 2", "dead", None)


def test_the_faults_that_are_not_asked_for_are_declared(healthy: Climbed) -> None:
    check = healthy.check("fault.hang")
    assert check["outcome"] == "not_applicable" and "endurance.faults" in check["reason"]


def test_the_whole_lane_is_judged_again_from_its_files(healthy: Climbed) -> None:
    assert "0 checks judged again" not in healthy.judged_again()
    content = healthy.written("endurance.json")
    assert {one["n"] for one in content["phases"].values()} == {6}
    assert len(content["memory"]["bytes"]) == 6


def test_a_bundle_whose_endurance_was_changed_does_not_hold(healthy: Climbed) -> None:
    from vst.errors import VerificationError
    from vst.provenance.bundle import Bundle
    from vst.provenance.rejudge import Judge

    judge = Judge(Bundle(healthy.dir))
    stored = healthy.check("fault.update_refused")
    stored["observed"]["posts"] = [path for path in stored["observed"]["posts"] if path != "/update_weights"]
    with pytest.raises(VerificationError, match="the calls of update_refused"):
        judge.again("L6", "fault.update_refused", stored)
    clean = judge.again("L6", "load.clean", healthy.check("load.clean"))
    assert clean is not None and clean.to_json() == {**healthy.check("load.clean"), "warnings": []}


def test_a_drift_in_a_later_cycle_is_named_with_its_cycle_and_nothing_is_broken_on_top_of_it(
    cache: Path, tmp_path: Path
) -> None:
    drift = fault(kind="noise", family="mlp_in", amount=0.05, first=LEARNING + 2 * 2 + 1)
    run = climb(cache, tmp_path / "run", "server=scripted", drift)
    assert run.code == 10, run.out
    check = run.check("cycles.all")
    assert check["outcome"] == "fail" and check["reason"].startswith("cycle 3, to B: ")
    assert check["evidence"] == "record-endurance-3-checkpoint.json"
    assert run.check("fault.publisher_killed")["outcome"] == "inconclusive"
    assert "tainted" in run.out
    run.judged_again()


def test_a_server_of_two_that_missed_an_update_is_the_one_that_is_named(cache: Path, tmp_path: Path) -> None:
    stale = fault(kind="stale", first=LEARNING - 1, instance=2)
    run = climb(cache, tmp_path / "run", "server=scripted", "server.replicas=2", stale)
    assert run.code == 10, run.out
    check = run.check("replicas.each")
    assert check["outcome"] == "fail"
    assert {one["seat"] for one in check["observed"] if not one["equal"]} == {"server 2"}
    assert check["reason"].startswith("server 2: no effect: equals A")
