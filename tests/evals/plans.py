"""Plans and evaluations for tests, small and made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from vst.evals.answer import Answered, make_record
from vst.evals.arithmetic import make_questions
from vst.evals.asking import Endpoint
from vst.evals.plan import Plan, Sampling
from vst.evals.prompts import make_prompts
from vst.evals.question import Question
from vst.evals.store import Evaluation, make_header

SERVER = {"content_digest": "sha256:a", "facts": {"version": "0.32.0"}, "instance": None, "updates": 0}
CALL = {"began": "2026-01-01T00:00:00Z", "seconds": 0.1, "failed_attempts": []}


def make_plan(count: int = 12, style: str = "completion", concurrency: int = 3, shots: int = 1) -> Plan:
    made = make_questions(count + shots, 7)
    prompts = make_prompts(made[:count], made[count:], style)
    sampling = Sampling(32, 0.0, 1.0, 1, ("\nQuestion:",))
    return Plan("embedded", {"made_from_seed": 7}, made[:count], prompts, made[count:], style, sampling, concurrency)


def header(plan: Plan, claim: str = "A") -> dict[str, object]:
    return make_header(claim, plan.to_json(), SERVER)


def endpoint(url: str, timeout_s: float = 20.0, retries: int = 2) -> Endpoint:
    return Endpoint(url, "tiny", None, timeout_s, retries)


def right_answers(plan: Plan) -> list[str]:
    return [f" So it is\n#### {question.value}" for question in plan.questions]


def evaluation(plan: Plan, texts: Sequence[str | None], claim: str = "A") -> Evaluation:
    """An evaluation with these answers; None is a request that failed."""
    records = []
    for index, text in enumerate(texts):
        answer = Answered(text or "", tuple((text or "").encode()), "sha256:" + "7" * 64, "stop", None)
        found = "no answer after 1 s" if text is None else answer
        records.append(make_record(plan, index, found, CALL))
    return Evaluation(header(plan, claim), tuple(records), True)


def changed(texts: Sequence[str], changes: dict[int, str | None]) -> list[str | None]:
    """The same answers but for some."""
    return [changes.get(index, text) for index, text in enumerate(texts)]


def other_question(plan: Plan, index: int) -> Plan:
    questions = list(plan.questions)
    questions[index] = Question("What is 1 + 1?", "#### 2", Fraction(2))
    return replace(plan, questions=tuple(questions))
