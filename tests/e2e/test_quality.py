"""Lane L5 on real CPU servers: identity, A to B against a cold B, one family left stale, and the lane ``eval``."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from e2e.conftest import Live, Run, Vst
from e2e.test_controls import open_session
from vst.evals.__main__ import main as evals
from vst.evals.store import read_evaluation
from vst.lanes import quality
from vst.lanes.cold_evaluation import ColdEvaluation
from vst.lanes.controls import groups
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files
from vst.lanes.fleet_opening import open_servers
from vst.lanes.servers import close
from vst.lanes.session import Session
from vst.lanes.transaction import Push
from vst.provenance.__main__ import check_run
from vst.provenance.schema import validate_run
from vst.transfer.plan import Sent
from vst.verdict import LaneVerdict, Outcome

SHORT = ["eval.max_tokens=8", "lane.cycles=1", "lane.controls=none"]
"""All 64 questions of the embedded set, with few tokens each: what is compared is whether they are equal."""


@pytest.fixture(scope="module")
def climbed(ladder: Run, vst: Vst) -> Run:
    """The ladder up to L5 on servers of its own; it leaves the cold evaluation in the cache."""
    return vst("lane=L5", *SHORT, timeout=900)


def test_the_tiny_pair_passes_on_identity_and_equals_the_cold_b_record_for_record(climbed: Run) -> None:
    assert climbed.code == 0, climbed.out
    assert [lane["lane"] for lane in climbed.verdict["lanes"]] == ["L0", "L1", "L2", "L3", "L4", "L5"]
    for id in ("eval.records", "eval.reference"):
        observed = climbed.check(id)["observed"]
        assert (observed["questions"], observed["texts_differ"], observed["failed"]) == (64, 0, 0)
        assert observed["floor"] == {"questions": 64, "texts": 0, "correctness": 0}
    cold, post = (read_evaluation(climbed.dir / f"evaluation-{name}.jsonl") for name in ("reference", "post"))
    assert [record.content() for record in cold.records] == [record.content() for record in post.records]
    assert climbed.check("eval.distinct")["observed"]["texts_differ"] > 32
    assert climbed.verdict["server"]["holds"] == "checkpoint"


def test_its_statistics_are_told_and_claim_nothing_about_quality(climbed: Run) -> None:
    said = climbed.check("eval.paired")["observed"]
    assert set(said) == {"eval.records", "eval.reference", "A to B"}
    assert said["eval.reference"]["smallest_effect"] == pytest.approx(0.1207, abs=1e-3)
    assert said["eval.reference"]["mcnemar_p"] == 1.0 and said["eval.reference"]["n"] == 64


def test_the_bundle_verifies_and_every_evaluation_is_judged_again_to_the_same(climbed: Run) -> None:
    report = check_run(climbed.dir, rerun_checks=True)
    assert report.lines()[0].startswith("verified"), report.lines()
    assert validate_run(climbed.dir) == []


def test_the_stored_evaluations_are_compared_without_a_server(climbed: Run) -> None:
    files = [str(climbed.dir / f"evaluation-{name}.jsonl") for name in ("pre", "post", "repeat")]
    assert evals(["compare", files[0], files[2]]) == 0
    assert evals(["compare", files[0], files[1], "--repeat", files[2]]) == 10


def test_comparing_stored_evaluations_is_a_lane_too(climbed: Run, vst: Vst) -> None:
    sides = {side: f"'{climbed.dir}/evaluation-{name}.jsonl'" for side, name in
             (("left", "post"), ("right", "pre"), ("repeat", "repeat"))}  # fmt: skip
    run = vst("lane=compare", *(f"lane.{side}={path}" for side, path in sides.items()))
    assert run.code == 10, run.out
    check = run.check("compare.evaluations")
    assert check["observed"]["texts_differ"] == len(check["observed"]["differing"]) > 32
    flips = json.loads((run.dir / "comparison-stored.json").read_text())["differing"]
    assert all(flip["left"]["text"] != flip["right"]["text"] for flip in flips)


@pytest.fixture
def session(climbed: Run, live: Live, pair: tuple[Path, Path], vst: Vst, tmp_path: Path) -> Session:
    assert climbed.code == 0, climbed.out
    return open_session([*live.attach(*pair), f"paths.cache='{vst.cache}'", "lane=L5", *SHORT], tmp_path / "run")


def run_stale(session: Session, family: str, monkeypatch: pytest.MonkeyPatch) -> LaneVerdict:
    """L5 with a publisher that leaves one family of B at A's values and says nothing of it."""
    honest = quality.push_with_draft

    def stale(session: Session, push: Push) -> list[Sent]:
        names = tuple(entry.name for entry in groups(session)[family])
        wrong = Push(push.role, "model", names, push.purpose) if push.role == "checkpoint" else push
        return honest(session, wrong)

    monkeypatch.setattr(quality, "push_with_draft", stale)
    run_files(session)
    open_servers(session)
    try:
        contract = run_contract(session)
        assert contract.passed, contract
        cold = ColdEvaluation(session)
        assert cold.found, "the cold evaluation of the fixture is of the same flags and questions"
        return quality.run_quality(session, cold.plan)
    finally:
        close(session)


def test_one_family_left_stale_fails_with_the_differing_records_listed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = run_stale(session, "norm", monkeypatch)
    checks = {check.id: check for check in lane.checks}
    assert lane.word == "FAIL_CLOSED" and lane.cause is Outcome.FAIL
    assert checks["eval.records"].outcome is Outcome.PASS
    assert checks["eval.reference"].outcome is Outcome.FAIL
    listed = checks["eval.reference"].observed["differing"]
    assert len(listed) > 32 and f"{len(listed)} of 64 records differ" in checks["eval.reference"].reason
    flips = json.loads((session.run / "comparison-reference.json").read_text())["differing"]
    assert [flip["index"] for flip in flips] == listed
    assert all(flip["left"]["text"] != flip["right"]["text"] for flip in flips)


def test_lane_eval_killed_and_resumed_has_the_records_of_an_undisturbed_run(
    climbed: Run, live: Live, vst: Vst, pair: tuple[Path, Path]
) -> None:
    asked = ["lane=eval", *live.attach(*pair), "eval.max_tokens=8"]
    process, out = vst.start(*asked)
    journal = out / "evaluation-eval.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 20:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = read_evaluation(journal)
    assert 0 < before.missing < 64
    resumed = vst(*asked, f"eval.resume='{journal}'")
    assert resumed.code == 0, resumed.out
    found = read_evaluation(resumed.dir / "evaluation-eval.jsonl")
    expected = read_evaluation(climbed.dir / "evaluation-pre.jsonl")
    assert [record.content() for record in found.records] == [record.content() for record in expected.records]
    posts = [event["params"]["question"] for event in resumed.events("http") if "question" in event["params"]]
    assert sorted([*posts, *(record.index for record in before.records)]) == list(range(64))
