"""The file of an evaluation: cut anywhere it keeps its whole lines, and what was changed afterwards is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from evals.plans import evaluation, header, make_plan, right_answers
from vst.errors import VerificationError
from vst.evals.compare import compare
from vst.evals.record import EvalRecord, line
from vst.evals.store import Journal, parse_evaluation, read_evaluation
from vst.provenance.schema import schema

PLAN = make_plan(5)
WHOLE = evaluation(PLAN, [*right_answers(PLAN)[:3], None, "nothing"])
DATA = WHOLE.to_bytes()


def test_an_evaluation_is_read_back_as_it_was() -> None:
    assert parse_evaluation(DATA) == WHOLE
    assert (WHOLE.right("strict"), len(WHOLE.failed), WHOLE.missing) == (3, 1, 0)


def test_cut_at_any_byte_every_whole_record_is_kept_and_none_is_made_up() -> None:
    first = DATA.index(b"\n") + 1
    for at in range(first, len(DATA)):
        found = parse_evaluation(DATA[:at])
        whole = DATA[:at].count(b"\n") - 1
        assert found.records == WHOLE.records[: min(whole, 5)]
        assert not found.complete


def test_without_a_whole_first_line_it_is_no_evaluation() -> None:
    for data in (b"", DATA[:40], b"{}\n", b"[]\n", b"hello\n", b'{"kind": "header", "format": "vst-evaluation/1"}\n'):
        with pytest.raises(VerificationError):
            parse_evaluation(data)


def edited(change: dict[str, object], number: int = 1) -> bytes:
    lines = DATA.splitlines(keepends=True)
    lines[number] = line({**json.loads(lines[number]), **change})
    return b"".join(lines)


CHANGES: list[dict[str, object]] = [
    {"text": "#### 1"}, {"strict": "1"}, {"expected": "1"}, {"tokens": [1]}, {"index": 3}, {"finish_reason": "length"},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_that_was_changed_does_not_fit_the_last_line(change: dict[str, object]) -> None:
    with pytest.raises(VerificationError):
        parse_evaluation(edited(change))


def test_what_a_call_took_is_no_part_of_the_digest() -> None:
    found = parse_evaluation(edited({"call": {"began": "later", "seconds": 9, "failed_attempts": []}}))
    assert found.digest == WHOLE.digest


def test_what_was_cached_is_no_part_of_the_digest_and_what_was_used_is() -> None:
    used = {"completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 16}}
    first = replace(WHOLE.records[0], usage=used)
    colder = replace(first, usage={**used, "prompt_tokens_details": None})
    longer = replace(first, usage={**used, "completion_tokens": 6})
    assert first.content() == colder.content() != longer.content()


def test_a_line_that_was_taken_out_is_found() -> None:
    lines = DATA.splitlines(keepends=True)
    with pytest.raises(VerificationError, match="does not fit"):
        parse_evaluation(b"".join(lines[:2] + lines[3:]))


def test_a_line_damaged_in_the_middle_is_named() -> None:
    lines = DATA.splitlines(keepends=True)
    lines[2] = lines[2][:50] + b"\n"
    with pytest.raises(VerificationError, match="line 3"):
        parse_evaluation(b"".join(lines))


DAMAGED = [
    {"index": -1}, {"index": "0"}, {"outcome": "maybe"}, {"text": None}, {"error": "x"}, {"strict": "1/0"},
    {"flexible": "4/2"}, {"expected": None}, {"index": True},
]  # fmt: skip


@pytest.mark.parametrize("change", DAMAGED)
def test_a_damaged_record_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(VerificationError):
        EvalRecord.from_json({**WHOLE.records[0].to_json(), **change})
    without = {key: value for key, value in WHOLE.records[0].to_json().items() if key != "usage"}
    with pytest.raises(VerificationError, match="usage"):
        EvalRecord.from_json(without)


def test_a_journal_grows_by_whole_lines_and_does_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    journal = Journal(path, header(PLAN), WHOLE.records[:2])
    assert read_evaluation(path).records == WHOLE.records[:2]
    journal.append(WHOLE.records[4])
    journal.close()
    found = read_evaluation(path)
    assert [record.index for record in found.records] == [0, 1, 4] and not found.complete and found.missing == 2
    with pytest.raises(FileExistsError):
        Journal(path, header(PLAN))


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="cannot be read"):
        read_evaluation(tmp_path / "none.jsonl")


def test_every_line_meets_the_published_schema() -> None:
    validator = Draft202012Validator(schema("evaluation"))
    for one in DATA.splitlines():
        validator.validate(json.loads(one))
    with pytest.raises(ValidationError):
        validator.validate({**WHOLE.records[0].to_json(), "strict": "18.0"})


def test_a_comparison_meets_the_published_schema() -> None:
    found = compare(WHOLE, evaluation(PLAN, ["1", "2", None, None, "nothing"]), "strict")
    Draft202012Validator(schema("comparison")).validate(json.loads(json.dumps(found.to_json())))
