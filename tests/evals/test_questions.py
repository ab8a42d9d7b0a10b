"""Question files, our own set, and the prompts that are made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vst.errors import VerificationError
from vst.evals.arithmetic import TEMPLATES, make_questions
from vst.evals.extract import extract
from vst.evals.prompts import INSTRUCTION, make_prompts
from vst.evals.question import choose, digest_of_set, read_questions

OURS = make_questions(64, 20260101)


def test_our_own_set_has_at_least_sixty_different_questions_of_every_template() -> None:
    assert len({question.text for question in OURS}) == 64
    assert len(TEMPLATES) == 8


def test_our_own_set_is_the_same_on_every_machine() -> None:
    assert digest_of_set(OURS) == "sha256:adda1a87cd1ea1833c12f1f7194b9da46f4c6a5639696a6317c4961e5d86129d"
    assert make_questions(64, 20260102) != OURS
    assert make_questions(10, 20260101) == OURS[:10]


def test_every_solution_ends_in_its_answer_and_its_steps_are_true() -> None:
    for question in make_questions(800, 3):
        found = extract(question.solution)
        assert found.strict == found.flexible == question.value > 0
        for step in question.solution.split(".\n")[0].split(", "):
            left, _, right = step.partition(" = ")
            a, sign, b = left.split()
            results = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b), "/": int(a) / int(b)}
            assert results[sign] == int(right)


def test_a_prompt_fits_the_tiny_models_context() -> None:
    made = make_questions(400, 20260101)
    longest = max(len(str(prompt.content)) for prompt in make_prompts(made[:399], made[399:], "completion"))
    assert longest + 32 < 512


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def test_a_file_in_the_two_fields_is_read_in_its_order(tmp_path: Path) -> None:
    pairs = {"a?": "1 + 1\n#### 2", "b?": "1,234", "c?": "$-3"}
    rows = [{"question": question, "answer": answer} for question, answer in pairs.items()]
    found = read_questions(write(tmp_path / "q.jsonl", rows[0], "", *rows[1:]))
    assert [(question.text, str(question.value)) for question in found] == [("a?", "2"), ("b?", "1234"), ("c?", "-3")]


WRONG = [
    "hello", "[]", "{}", '{"question": "a"}', '{"question": 1, "answer": "#### 2"}',
    '{"question": "a", "answer": "1 and 2"}', '{"question": "a", "answer": "#### none"}',
    '{"question": "a", "answer": "none"}',
]  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_line_that_is_no_question_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"q\.jsonl, line 2"):
        read_questions(write(tmp_path / "q.jsonl", {"question": "a", "answer": "#### 1"}, line))


def test_an_empty_file_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="no question"):
        read_questions(write(tmp_path / "q.jsonl"))
    with pytest.raises(VerificationError, match="cannot be read"):
        read_questions(tmp_path / "none.jsonl")


def test_asking_for_more_questions_than_there_are_is_refused() -> None:
    assert choose(OURS, None, "x") == OURS and choose(OURS, 3, "x") == OURS[:3]
    with pytest.raises(VerificationError, match="asked for are 65"):
        choose(OURS, 65, "ours")


def test_a_completion_prompt_has_the_examples_and_ends_where_the_answer_begins() -> None:
    (prompt,) = make_prompts(OURS[:1], OURS[1:3], "completion")
    text = str(prompt.content)
    assert text.count("Question:") == 3 and text.count("####") == 2
    assert text.endswith(f"Question: {OURS[0].text}\nAnswer:")
    assert OURS[0].solution not in text


def test_a_chat_prompt_has_the_examples_as_turns() -> None:
    (prompt,) = make_prompts(OURS[:1], OURS[1:2], "chat")
    messages = prompt.fields()["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == INSTRUCTION and messages[-1]["content"] == OURS[0].text


def test_an_example_that_is_also_asked_is_refused() -> None:
    with pytest.raises(VerificationError, match="its answer would be told"):
        make_prompts(OURS[:3], OURS[2:3], "completion")
