"""Question sets: JSON lines with GSM8K's two fields, ``question`` and ``answer``, whose last line is ``#### n``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.evals import extract, number


@dataclass(frozen=True)
class Question:
    """One question, its worked solution as the set has it, and the value that is right."""

    text: str
    solution: str
    value: Fraction

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of question and solution."""
        return digest_of([self.text, self.solution])


def digest_of(content: Any) -> str:
    """``sha256:<hex>`` of JSON values, spelled in one way."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def digest_of_set(questions: Iterable[Question]) -> str:
    """``sha256:<hex>`` over a question set in its order."""
    return digest_of([question.digest for question in questions])


def read_questions(path: Path) -> tuple[Question, ...]:
    """All questions of a file; VerificationError names the line that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise VerificationError(f"the questions in {path} cannot be read: {error}") from error
    found = tuple(_question(line, f"{path.name}, line {at}") for at, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise VerificationError(f"{path} holds no question")
    return found


def _question(line: str, where: str) -> Question:
    try:
        data = json.loads(line)
        text, solution = data["question"], data["answer"]
    except (ValueError, KeyError, TypeError) as error:
        raise VerificationError(f"{where} is no question: expected an object with question and answer") from error
    if not isinstance(text, str) or not isinstance(solution, str):
        raise VerificationError(f"{where} is no question: question and answer must be text")
    return Question(text, solution, _right(solution, where))


def _right(solution: str, where: str) -> Fraction:
    """The value after the marker; a solution without one must be a number and nothing else that could be one."""
    value = extract.strict(solution)
    if value is None and extract.MARKER not in solution and len(found := list(number.numbers(solution))) == 1:
        value = found[0].value
    if value is None:
        raise VerificationError(f"{where} has no answer that can be read: expected '#### <number>' at its end")
    return value


def choose(questions: Sequence[Question], limit: int | None, where: str) -> tuple[Question, ...]:
    """The first ``limit`` questions, all without one; VerificationError when there are fewer."""
    if limit is not None and limit > len(questions):
        raise VerificationError(f"{where} holds {len(questions)} questions, asked for are {limit}")
    return tuple(questions[:limit])
