"""Judging a stored L5 again: its evaluations are read anew, and a verdict that they do not bear out is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evals.plans import changed, evaluation, make_plan, right_answers
from omegaconf import OmegaConf

from vst.evals.judging import Rules
from vst.evals.store import Evaluation
from vst.lanes import eval_checks
from vst.lanes.drafts import acceptance_check
from vst.lanes.quality import STATES, comparable_check, comparison_file, comparisons
from vst.provenance.__main__ import check_run
from vst.provenance.composed import RESOLVED, resolved_digest
from vst.provenance.rundir import RunDir
from vst.provenance.schema import validate_run
from vst.provenance.sidecar import Request
from vst.verdict import Check, LaneVerdict, Verdict

PLAN = make_plan(64)
RIGHT = right_answers(PLAN)
RULES = Rules(0.05, 0.02, 0.8, "flexible")
DEFAULTS = {"chat_template": "sha256:t", "sampling": {"temperature": 0.7}}
COUNTS = {"proposed": 48, "accepted": 40, "rate": 0.833333}


def states(changes: dict[str, dict[int, str | None]]) -> dict[str, Evaluation]:
    """A before, B after; ``changes`` are the answers of some state that are otherwise."""
    of_b = [f"{text} or so" for text in RIGHT]
    texts = {"reference": of_b, **{name: RIGHT for name in STATES[:3]}, "post": of_b}
    made = {name: evaluation(PLAN, changed(answers, changes.get(name, {})), name) for name, answers in texts.items()}
    return {name: replace(one, drafted=COUNTS) for name, one in made.items()}


def checks(run: RunDir, taken: dict[str, Evaluation]) -> list[Check]:
    pairs = comparisons(taken, RULES.extraction)
    floor = eval_checks.floor_of(pairs["repeat"])
    for name, pair in pairs.items():
        run.write(comparison_file(name), pair.to_json())
    gates = {name: pairs[name] for name in ("eval.records", "eval.reference")}
    arrival = {"state": "evaluation-post", "found": COUNTS, "expected": COUNTS}
    counted = {"method": "eagle", "declared": True, "wanted": 1, "arrivals": [arrival], "repeats": [COUNTS] * 2}
    return [
        eval_checks.complete_check(taken, (*STATES, "reference")),
        eval_checks.pinned_check(taken, PLAN.to_json(), DEFAULTS),
        comparable_check(taken),
        eval_checks.distinct_check(pairs["eval.distinct"]),
        *(eval_checks.records_check(name, pairs[name], floor, RULES, comparison_file(name)) for name in gates),
        eval_checks.paired_check(gates, pairs["shift"], floor, RULES),
        acceptance_check({**counted, "stale": None}, 0.02),
    ]


def store(
    path: Path,
    changes: dict[str, dict[int, str | None]] | None = None,
    forge: Callable[[dict[str, Any]], None] = lambda verdict: None,
    spoil: Callable[[str, bytes], bytes] = lambda name, data: data,
) -> Path:
    """A run of L5 on disk; ``forge`` edits the verdict, ``spoil`` the evaluations, before everything is sealed."""
    rules = {key: value for key, value in RULES.to_json().items()} | {"draft_margin": 0.02}
    kept = OmegaConf.create({"lane": {"name": "L5"}, "server": {"capabilities": {}}, "eval": rules})
    run = RunDir(path, Request(("vst",), (), resolved_digest(kept)))
    run.evidence.source = run.evidence.machine = {"unknown": {}}
    run.write_bytes(RESOLVED, OmegaConf.to_yaml(kept, sort_keys=True).encode())
    taken = states(changes or {})
    for name, one in taken.items():
        run.write_bytes(f"evaluation-{name}.jsonl", spoil(name, one.to_bytes()))
    verdict = Verdict("L5", [LaneVerdict("L5", tuple(checks(run, taken)))])
    server = {"state": "serving", "holds": "checkpoint", "left": "stopped"}
    content = {
        "format": "vst-verdict/1", "lane": "L5", "verdict": verdict.word,
        "cause": verdict.cause.value if verdict.cause else None, "interrupted": False,
        "exit_code": verdict.exit_code, "noise_floor": None, "covered": None, "server": server,
        "lanes": [lane.to_json() for lane in verdict.lanes],
    }  # fmt: skip
    forge(content)
    outcome = {key: content[key] for key in ("verdict", "exit_code", "server")}
    run.finish(content, {**outcome, "attempt": 1, "error": None})
    return path


def again(path: Path) -> list[str]:
    return [str(finding) for finding in check_run(path, rerun_checks=True).findings]


def turned_to_pass(verdict: dict[str, Any]) -> None:
    for lane in verdict["lanes"]:
        lane.update(verdict="PASS", cause=None)
        for check in lane["checks"]:
            check.update(outcome="pass", reason="")
    verdict.update(verdict="PASS", cause=None, exit_code=0)


def test_a_passing_evaluation_is_judged_again_to_the_same_and_meets_its_schemas(tmp_path: Path) -> None:
    path = store(tmp_path / "run")
    assert json.loads((path / "verdict.json").read_bytes())["verdict"] == "PASS"
    report = check_run(path, rerun_checks=True)
    assert report.holds and report.rejudged == 8, report.lines()
    assert [line for line in validate_run(path) if "/source" not in line and "/machine" not in line] == []


SPOILED: dict[str, dict[str, dict[int, str | None]]] = {
    "eval.records": {"identity": {5: "#### 1"}},
    "eval.reference": {"post": {6: RIGHT[6]}},
    "eval.complete": {"post": {7: None}},
    "eval.distinct": {"pre": {index: f"{text} or so" for index, text in enumerate(RIGHT)}},
}


@pytest.mark.parametrize("check", SPOILED)
def test_a_failure_is_judged_again_to_the_same_and_a_pass_that_was_made_up_is_found(check: str, tmp_path: Path) -> None:
    path = store(tmp_path / "run", SPOILED[check])
    verdict = json.loads((path / "verdict.json").read_bytes())
    outcomes = {one["id"]: one["outcome"] for one in verdict["lanes"][0]["checks"]}
    assert verdict["verdict"] == "FAIL_CLOSED" and outcomes[check] in ("fail", "inconclusive")
    assert again(path) == []
    forged = store(tmp_path / "forged", SPOILED[check], turned_to_pass)
    assert check_run(forged).holds, "the digests alone do not tell"
    assert any(line.startswith(f"{check}: outcome is 'pass'") for line in again(forged))


def test_an_answer_that_is_said_to_be_read_otherwise_than_its_text_is_found(tmp_path: Path) -> None:
    def wrong(name: str, data: bytes) -> bytes:
        """What a tool would have written that counts everything as right."""
        if name != "post":
            return data
        found = states({"post": {index: "#### 1" for index in range(9)}})[name]
        read = [replace(one, strict=one.expected, flexible=one.expected) for one in found.records]
        return replace(found, records=tuple(read)).to_bytes()

    found = again(store(tmp_path / "run", {"post": {index: "#### 1" for index in range(9)}}, turned_to_pass, wrong))
    assert any("question 0 is said to be" in line and "read again it is 1 and 1" in line for line in found), found


def test_counts_of_a_draft_that_are_not_those_of_the_evaluation_are_found(tmp_path: Path) -> None:
    def lie(verdict: dict[str, Any]) -> None:
        for check in verdict["lanes"][0]["checks"]:
            if check["id"] == "draft.acceptance":
                check["observed"]["arrivals"][0]["found"]["accepted"] = 41

    found = again(store(tmp_path / "run", forge=lie))
    assert any("draft.acceptance" in line and "its file says otherwise" in line for line in found), found
