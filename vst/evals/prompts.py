"""How a question is put: as a text to be continued with worked examples before it, or as the messages of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vst.errors import VerificationError
from vst.evals.question import Question, digest_of

COMPLETION, CHAT = "completion", "chat"
STYLES = (COMPLETION, CHAT)
INSTRUCTION = "Solve the problem. End with the answer alone on the last line, as #### <number>."


@dataclass(frozen=True)
class Prompt:
    """What is sent for one question: ``content`` is a text, or the messages as (role, text) pairs."""

    style: str
    content: str | tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        return digest_of([self.style, self.content])

    def fields(self) -> dict[str, Any]:
        """The part of the request that holds it."""
        if isinstance(self.content, str):
            return {"prompt": self.content}
        return {"messages": [{"role": role, "content": text} for role, text in self.content]}


def make_prompts(questions: Sequence[Question], shots: Sequence[Question], style: str) -> tuple[Prompt, ...]:
    """One prompt for each question, all with the same examples.

    VerificationError when an example is also asked: its answer stands in the prompt.
    """
    asked = {question.text for question in questions}
    told = next((shot for shot in shots if shot.text in asked), None)
    if told is not None:
        raise VerificationError(f"an example is one of the questions, so its answer would be told: {told.text[:120]!r}")
    make = _chat if style == CHAT else _completion
    return tuple(make(question, shots) for question in questions)


def _completion(question: Question, shots: Sequence[Question]) -> Prompt:
    examples = "".join(f"Question: {shot.text}\nAnswer: {shot.solution}\n\n" for shot in shots)
    return Prompt(COMPLETION, f"{examples}Question: {question.text}\nAnswer:")


def _chat(question: Question, shots: Sequence[Question]) -> Prompt:
    turns = [turn for shot in shots for turn in (("user", shot.text), ("assistant", shot.solution))]
    return Prompt(CHAT, (("system", INSTRUCTION), *turns, ("user", question.text)))
