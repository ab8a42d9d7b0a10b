"""The checks on evaluations, from made-up ones: what passes, what fails, and what cannot be decided."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evals.plans import changed, evaluation, make_plan, right_answers

from vst.errors import VerificationError
from vst.evals.compare import compare
from vst.evals.defaults import server_defaults
from vst.evals.judging import Floor, Rules
from vst.evals.store import Evaluation
from vst.lanes.eval_checks import (
    complete_check,
    distinct_check,
    need_reference,
    paired_check,
    pinned_check,
    records_check,
)
from vst.lanes.quality import COMPARED, STATES, comparable_check, comparisons
from vst.verdict import Outcome

PLAN = make_plan(64)
RIGHT = right_answers(PLAN)
A = evaluation(PLAN, RIGHT)
B = evaluation(PLAN, ["something else"] * 64, "B")
RULES = Rules(0.05, 0.02, 0.8, "flexible")
ZERO, NOISY = Floor(64, 0, 0), Floor(64, 5, 1)
WANTED = (*STATES, "reference")
TAKEN = {"reference": B, "pre": A, "repeat": A, "identity": A, "post": B}
NONE: dict[str, Evaluation] = {}


def with_changes(changes: dict[int, str | None]) -> Evaluation:
    return evaluation(PLAN, changed(RIGHT, changes))


def test_complete_passes_only_when_every_question_of_every_evaluation_was_answered() -> None:
    assert complete_check(TAKEN, WANTED).outcome is Outcome.PASS
    failed = complete_check({**TAKEN, "post": with_changes({7: None})}, WANTED)
    assert failed.outcome is Outcome.FAIL and "first question 7: no answer" in failed.reason
    assert failed.observed["post"] == {"asked": 64, "answered": 63, "failed": [7], "missing": 0, "tried_again": 0}
    cut = complete_check({**TAKEN, "identity": replace(A, records=A.records[:60])}, WANTED)
    assert cut.outcome is Outcome.FAIL and "0 failed, 4 missing of 64" in cut.reason
    less = complete_check({"pre": A}, WANTED)
    assert less.outcome is Outcome.INCONCLUSIVE and "repeat, identity, post, reference" in less.reason


def test_attempts_that_were_repeated_are_a_warning() -> None:
    records = list(A.records)
    records[3] = replace(records[3], call={"failed_attempts": ["answered 503: busy"]})
    check = complete_check({**TAKEN, "pre": replace(A, records=tuple(records))}, WANTED)
    assert check.outcome is Outcome.PASS and check.warnings == ("evaluation-pre: 1 attempts failed and were repeated",)


def test_pinned_names_everything_by_digest_and_reports_the_servers_own_defaults() -> None:
    defaults = {"chat_template": "sha256:t", "sampling": {"temperature": 0.7, "top_p": 1.0, "eos_token_id": 5}}
    check = pinned_check(TAKEN, PLAN.to_json(), defaults)
    assert check.outcome is Outcome.PASS
    assert check.warnings == ("the server's default temperature is 0.7; sent was 0.0",)
    for key in ("questions", "prompts", "extraction", "plan", "sampling", "chat_template"):
        assert check.observed[key]


def test_pinned_fails_when_one_evaluation_asked_something_else_or_in_other_tokens() -> None:
    other = evaluation(make_plan(64, concurrency=9), RIGHT)
    assert "evaluation-post asked something else" in pinned_check({**TAKEN, "post": other}, PLAN.to_json(), {}).reason
    records = list(B.records)
    records[9] = replace(records[9], prompt_tokens="sha256:" + "0" * 64)
    check = pinned_check({**TAKEN, "post": replace(B, records=tuple(records))}, PLAN.to_json(), {})
    assert check.outcome is Outcome.FAIL and "question 9 became other tokens in evaluation-post" in check.reason


def test_records_fail_on_one_character_and_list_every_record_that_differs() -> None:
    found = compare(A, with_changes({3: RIGHT[3] + " ", 40: "#### 1"}), "flexible")
    check = records_check("eval.records", found, ZERO, RULES, "comparison-records.json")
    assert check.outcome is Outcome.FAIL and check.observed["differing"] == [3, 40] and check.tolerance == 0
    assert check.evidence == "comparison-records.json"


def test_records_that_were_not_taken_or_have_no_floor_are_inconclusive() -> None:
    same = compare(A, A, "flexible")
    for found, floor in ((None, ZERO), (same, None), (None, None)):
        assert records_check("eval.records", found, floor, RULES, "x").outcome is Outcome.INCONCLUSIVE
    assert records_check("eval.records", same, ZERO, RULES, "x").outcome is Outcome.PASS


def test_a_and_b_that_answer_alike_prove_nothing() -> None:
    assert distinct_check(compare(A, B, "flexible")).outcome is Outcome.PASS
    alike = distinct_check(compare(A, A, "flexible"))
    assert alike.outcome is Outcome.INCONCLUSIVE and "questions insensitive" in alike.reason
    assert distinct_check(None).outcome is Outcome.INCONCLUSIVE


def test_paired_passes_by_equality_without_noise_although_the_sample_is_small() -> None:
    gates = {"eval.records": compare(A, A, "flexible"), "eval.reference": compare(B, B, "flexible")}
    check = paired_check(gates, compare(A, B, "flexible"), ZERO, RULES)
    assert check.outcome is Outcome.PASS
    assert check.observed["A to B"]["lost"] == 64 and check.observed["eval.records"]["smallest_effect"] > 0.02
    noisy = paired_check(gates, None, NOISY, RULES)
    assert noisy.outcome is Outcome.INCONCLUSIVE and "too wide for the margin" in noisy.reason


def test_paired_fails_on_a_significant_change_of_a_gate() -> None:
    worse = compare(A, with_changes({index: "#### 0" for index in range(9)}), "flexible")
    check = paired_check({"eval.reference": worse}, None, NOISY, RULES)
    assert check.outcome is Outcome.FAIL and check.reason.startswith("eval.reference: correctness changed")
    assert paired_check({}, None, ZERO, RULES).outcome is Outcome.INCONCLUSIVE


def test_only_evaluations_that_came_to_their_end_are_compared() -> None:
    assert set(comparisons(TAKEN, "flexible")) == set(COMPARED)
    cut = {**TAKEN, "post": replace(B, complete=False, records=B.records[:3])}
    assert set(comparisons(cut, "flexible")) == set(COMPARED) - {"eval.reference", "shift"}
    assert comparisons(NONE, "flexible") == {}


def test_a_cold_server_that_was_started_otherwise_is_refused() -> None:
    assert comparable_check(TAKEN).outcome is Outcome.PASS
    other = replace(B, header={**B.header, "server": {"facts": {"version": "0.31.0"}}})
    check = comparable_check({**TAKEN, "reference": other})
    assert check.outcome is Outcome.REFUSED and "version: '0.31.0' / '0.32.0'" in check.reason
    assert comparable_check({"pre": A}).outcome is Outcome.INCONCLUSIVE


def test_a_given_reference_has_to_be_whole_of_the_same_plan_and_of_a_known_server() -> None:
    content = A.header["server"]["content_digest"]
    need_reference(A, PLAN.digest, content, "x")
    wrong = {
        "asked something else": (A, "sha256:other"),
        "1 failed": (with_changes({1: None}), PLAN.digest),
        "missing": (replace(A, complete=False, records=A.records[:9]), PLAN.digest),
        "which server": (replace(A, header={**A.header, "server": {}}), PLAN.digest),
    }
    for said, (found, plan) in wrong.items():
        with pytest.raises(VerificationError, match=said):
            need_reference(found, plan, content, "x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"content_digest": "blake3:c"}, "is of a checkpoint with the content blake3:c"),
        ({"updates": 2}, "after 2 updates of its run"),
        ({"updates": None}, "after None updates"),
        ({"instance": {"start_time": "1", "weight_version": "vst-1"}}, "with the weight version vst-1"),
        ({"instance": {"start_time": "1"}}, "with the weight version None"),
        ({"instance": "of another kind"}, "with the weight version None"),
    ],
)
def test_an_evaluation_of_another_checkpoint_or_of_an_updated_server_is_no_reference(
    change: dict[str, Any], said: str
) -> None:
    server = A.header["server"]
    found = replace(A, header={**A.header, "server": {**server, **change}})
    with pytest.raises(VerificationError, match=said):
        need_reference(found, PLAN.digest, server["content_digest"], "x")


def test_an_evaluation_that_does_not_say_who_started_its_server_is_no_reference() -> None:
    server = A.header["server"]
    silent = {key: value for key, value in server.items() if key != "instance"}
    with pytest.raises(VerificationError, match="with the weight version None"):
        need_reference(
            replace(A, header={**A.header, "server": silent}), PLAN.digest, server["content_digest"], "x"
        )


def test_the_defaults_of_a_checkpoint_and_of_its_server_are_read(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "eos_token_id": [1, 2], "x": 1}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    override = {"model_config": {"generation_config": "auto", "override_generation_config": {"top_k": 20}}}
    found = server_defaults(tmp_path, override)
    assert found["sampling"] == {"temperature": 0.6, "eos_token_id": [1, 2], "top_k": 20}
    inside = found["chat_template"]
    (tmp_path / "chat_template.jinja").write_text("{{ y }}")
    assert server_defaults(tmp_path, {})["chat_template"] not in (None, inside)
    vllm = server_defaults(tmp_path, {"model_config": {"generation_config": "vllm"}})
    assert vllm["sampling"] == {} and server_defaults(tmp_path / "none", {})["chat_template"] is None
