"""Judging again from the stored records: the same verdict comes out, and a verdict that was made up does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vst.provenance.__main__ import check_run
from vst.provenance.schema import validate_run

from .conftest import verify_cli
from .stored_run import StoredRun


def again(path: Path) -> list[str]:
    return [str(finding) for finding in check_run(path, rerun_checks=True).findings]


def test_a_passing_ladder_is_judged_again_to_the_same_verdict_without_torch_and_vllm(tmp_path: Path) -> None:
    path = StoredRun(tmp_path / "run").finish()
    assert json.loads((path / "verdict.json").read_bytes())["verdict"] == "PASS"
    code, text = verify_cli(path, "--rerun-checks")
    assert code == 0 and ", 12 checks judged again" in text, text
    schemas = [line for line in validate_run(path) if "/source" not in line and "/machine" not in line]
    assert schemas == []


def test_a_measured_noise_floor_is_measured_again(tmp_path: Path) -> None:
    path = StoredRun(tmp_path / "run", noise=0.01).finish()
    assert again(path) == []
    assert json.loads((path / "verdict.json").read_bytes())["noise_floor"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("file", "value", "check"),
    [
        ("identity-2", -1.5, "identity.record"),
        ("checkpoint-cycle-2", -1.0, "transition.to_b"),
        ("model-cycle-1", -3.0, "transition.back"),
        ("checkpoint-final", -2.0, "transition.final"),
        ("control-norm", -3.0, "control.norm"),
    ],
)
def test_a_run_that_failed_is_judged_again_to_the_same_failure(
    tmp_path: Path, file: str, value: float, check: str
) -> None:
    path = StoredRun(tmp_path / "run", {file: value}).finish()
    verdict = json.loads((path / "verdict.json").read_bytes())
    outcomes = {one["id"]: one["outcome"] for lane in verdict["lanes"] for one in lane["checks"]}
    assert verdict["verdict"] == "FAIL_CLOSED" and outcomes[check] in ("fail", "inconclusive")
    assert again(path) == []


def turned_to_pass(verdict: dict[str, Any]) -> None:
    """What a forger would write: every check passed, and everything that follows from that."""
    for lane in verdict["lanes"]:
        lane.update(verdict="PASS", cause=None)
        for check in lane["checks"]:
            check.update(outcome="pass", reason="")
    verdict.update(verdict="PASS", cause=None, exit_code=0)


@pytest.mark.parametrize(
    ("file", "value", "check"),
    [
        ("identity-2", -1.5, "identity.record"),
        ("checkpoint-cycle-2", -1.0, "transition.to_b"),
        ("model-cycle-1", -3.0, "transition.back"),
        ("checkpoint-final", -2.0, "transition.final"),
        ("control-norm", -3.0, "control.norm"),
        ("model-2", -1.5, "oracle.repeatable"),
    ],
)
def test_a_verdict_that_says_pass_against_its_records_is_found_although_all_digests_fit(
    tmp_path: Path, file: str, value: float, check: str
) -> None:
    stored = StoredRun(tmp_path / "run", {file: value})
    if file == "model-2":
        stored.spoilt = {}
        path = stored.finish(lambda verdict: verdict.update(noise_floor=1.0))
        assert check_run(path).holds
        assert again(path) == ["verdict.json: noise_floor is 1.0, the records of A give 0.0"]
        return
    path = stored.finish(turned_to_pass)
    assert check_run(path).holds, "the digests alone do not tell"
    found = again(path)
    assert any(line.startswith(f"{check}: ") and "judged again from the records" in line for line in found), found


def test_an_observation_that_was_left_out_is_found(tmp_path: Path) -> None:
    def shorten(verdict: dict[str, Any]) -> None:
        turned_to_pass(verdict)
        for check in verdict["lanes"][2]["checks"]:
            if check["id"] == "transition.to_b":
                check["observed"] = check["observed"][:1]

    path = StoredRun(tmp_path / "run", {"checkpoint-cycle-2": -1.0}).finish(shorten)
    assert any(line.startswith("transition.to_b: outcome is 'pass'") for line in again(path))


def test_a_label_that_is_said_to_have_content_is_compared_with_the_records(tmp_path: Path) -> None:
    def lie(verdict: dict[str, Any]) -> None:
        turned_to_pass(verdict)
        for check in verdict["lanes"][2]["checks"]:
            if check["id"] == "transition.label":
                for one in check["observed"]:
                    one["content"] = True

    path = StoredRun(tmp_path / "run", {"model-cycle-2": -2.0}).finish(lie)
    assert any(line.startswith("transition.label: cannot be judged again: a label is said") for line in again(path))


def test_a_cached_token_that_was_waved_through_is_found(tmp_path: Path) -> None:
    def warm(verdict: dict[str, Any]) -> None:
        for check in verdict["lanes"][2]["checks"]:
            if check["id"] == "cache.cold":
                check["observed"][0]["after"] = 16

    path = StoredRun(tmp_path / "run").finish(warm)
    assert any(line.startswith("cache.cold: outcome is 'pass'") for line in again(path))


def test_a_record_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    path = StoredRun(tmp_path / "run").finish()
    (path / "record-reference.json").unlink()
    assert "transition.to_b: cannot be judged again: record-reference.json is missing or damaged" in again(path)
    (path / "record-model-2.json").write_text('{"format": "vst-record/1"}')
    assert any(line.startswith("verdict.json: cannot be judged again: damaged record") for line in again(path))
    other = StoredRun(tmp_path / "other").finish()
    (other / "record-identity-1.json").write_text('{"format": "vst-record/1"}')
    assert any(line.startswith("identity.record: cannot be judged again: damaged record") for line in again(other))
