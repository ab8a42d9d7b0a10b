"""lm-eval's log of samples as records of ours; the lines below are as lm-eval 0.4.13 writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vst.errors import VerificationError
from vst.evals import lm_eval
from vst.evals.compare import compare
from vst.evals.plan import Sampling
from vst.evals.store import parse_evaluation

DRAWN = {"until": ["Question:", "</s>"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 32, "seed": 7}
ANSWERS = [" 21 + 33 = 54.\n#### 54", " It is 49", " #### 5\nQuestion: 7?", lm_eval.NOTHING]
TARGETS = ["21 + 33 = 54.\n#### 54", "#### 49", "#### 6", "#### 1"]


def sample(document: int, chosen: str, text: str, **changes: Any) -> dict[str, Any]:
    question = f"Question {document}?"
    return {
        "doc_id": document,
        "doc": {"question": question, "answer": TARGETS[document]},
        "target": TARGETS[document],
        "arguments": {"gen_args_0": {"arg_0": f"Question: {question}\nAnswer:", "arg_1": DRAWN}},
        "resps": [[text]],
        "filtered_resps": ["54"],
        "filter": chosen,
        "metrics": ["exact_match"],
        "doc_hash": "e2a5", "prompt_hash": "4172", "target_hash": "b367", "exact_match": 0.0, **changes,
    }  # fmt: skip


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def lines(answers: list[str]) -> list[dict[str, Any]]:
    filters = ("strict-match", "flexible-extract")
    return [sample(number, chosen, text) for chosen in filters for number, text in enumerate(answers)]


def test_a_log_becomes_one_record_for_each_document(tmp_path: Path) -> None:
    found = lm_eval.read_samples(write(tmp_path / "s.jsonl", lines(ANSWERS)), "A", "gsm8k", {"version": "0.32.0"})
    assert [record.strict for record in found.records] == ["54", None, "5", None]
    assert [record.flexible for record in found.records] == ["54", "49", "5", None]
    assert [record.outcome for record in found.records] == ["answered"] * 3 + ["failed"]
    assert (found.right("strict"), found.right("flexible")) == (1, 2)
    assert found.plan["sampling"] == DRAWN
    assert parse_evaluation(found.to_bytes()) == found


def test_two_logs_are_compared_like_any_two_evaluations(tmp_path: Path) -> None:
    left, right = (
        lm_eval.read_samples(write(tmp_path / f"{name}.jsonl", lines(answers)), name, "gsm8k", {})
        for name, answers in (("A", ANSWERS[:3]), ("B", [ANSWERS[0], "none", ANSWERS[2]]))
    )
    found = compare(left, right, "flexible")
    assert [pair.left.index for pair in found.differing] == [1] and found.table.lost == 1


def test_logs_of_other_sampling_fields_are_not_compared(tmp_path: Path) -> None:
    left = lm_eval.read_samples(write(tmp_path / "l.jsonl", lines(ANSWERS)), "A", "gsm8k", {})
    warm = {"x": {"arg_0": "p", "arg_1": {**DRAWN, "temperature": 1}}}
    warmer = [{**one, "arguments": warm} for one in lines(ANSWERS)]
    right = lm_eval.read_samples(write(tmp_path / "r.jsonl", warmer), "B", "gsm8k", {})
    with pytest.raises(VerificationError, match="sampling"):
        compare(left, right, "flexible")


ODD: dict[str, dict[str, Any]] = {
    "no text": {"resps": [[None]]},
    "two responses": {"resps": [["a", "b"]]},
    "a target without a number": {"target": "none"},
    "no arguments": {"arguments": {}},
    "log-likelihoods": {"arguments": {"x": {"arg_0": "p", "arg_1": "q"}}},
    "no document": {"doc_id": None},
}


@pytest.mark.parametrize("what", ODD)
def test_a_line_that_is_no_sample_of_a_generation_is_refused(what: str, tmp_path: Path) -> None:
    odd = [*lines(ANSWERS[:1]), sample(1, "strict-match", "1", **ODD[what])]
    with pytest.raises(VerificationError, match="no log of lm-eval's samples"):
        lm_eval.read_samples(write(tmp_path / "s.jsonl", odd), "A", "gsm8k", {})


def test_one_document_with_two_different_answers_is_refused(tmp_path: Path) -> None:
    both = [sample(0, "strict-match", "54"), sample(0, "flexible-extract", "55")]
    with pytest.raises(VerificationError, match="two responses"):
        lm_eval.read_samples(write(tmp_path / "s.jsonl", both), "A", "gsm8k", {})


def test_an_empty_log_is_refused_and_so_are_two_of_one_task(tmp_path: Path) -> None:
    with pytest.raises(VerificationError):
        lm_eval.read_samples(write(tmp_path / "s.jsonl", []), "A", "gsm8k", {})
    with pytest.raises(VerificationError, match="0 logs"):
        lm_eval.find_samples(tmp_path, "gsm8k")
    for day in ("1", "2"):
        write(tmp_path / f"samples_gsm8k_{day}.jsonl", lines(ANSWERS))
    with pytest.raises(VerificationError, match="2 logs"):
        lm_eval.find_samples(tmp_path, "gsm8k")


def test_the_command_names_the_server_and_every_sampling_field_that_a_task_lets_be_set() -> None:
    argv = lm_eval.command("t", "http://h:1", "tiny", Path("/o"), Sampling(32, 0.0, 1.0, 7), 4, 9, "/i", 60.0)
    assert argv[:5] == [sys.executable, "-m", "lm_eval", "--model", "local-completions"]
    given = dict(zip(argv[3::2], argv[4::2], strict=False))
    assert "base_url=http://h:1/v1/completions,model=tiny,num_concurrent=4,max_retries=1" in given["--model_args"]
    for part in ("temperature=0.0", "top_k=-1", "repetition_penalty=1.0", "max_gen_toks=32", "seed=7"):
        assert part in given["--gen_kwargs"]
    assert argv[-4:] == ["--limit", "9", "--include_path", "/i"]
