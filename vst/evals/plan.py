"""What an evaluation asks and how its answers are read: everything that two evaluations must share to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vst.evals import extract
from vst.evals.prompts import Prompt
from vst.evals.question import Question, digest_of, digest_of_set

PINNED = ("questions", "shots", "prompts", "style", "sampling", "extraction", "concurrency")
"""The keys of a plan's account of itself that must be equal; the rest says where things came from."""


@dataclass(frozen=True)
class Sampling:
    """Every field that decides how an answer is drawn, so that no default of a server does."""

    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The part of the request; what is not configurable has the value that changes nothing."""
        return {
            **asdict(self),
            "stop": list(self.stop),
            "min_tokens": 0,
            "top_k": -1,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "n": 1,
            "stream": False,
            "ignore_eos": False,
            "stop_token_ids": [],
            "include_stop_str_in_output": False,
            "skip_special_tokens": True,
            "spaces_between_special_tokens": True,
            "return_token_ids": True,
        }


@dataclass(frozen=True)
class Plan:
    """Questions with their prompts, in order; ``source`` says where the questions are from, ``shots`` the examples."""

    name: str
    source: Mapping[str, Any]
    questions: tuple[Question, ...]
    prompts: tuple[Prompt, ...]
    shots: tuple[Question, ...]
    style: str
    sampling: Sampling
    concurrency: int

    def body(self, model: str, index: int) -> dict[str, Any]:
        """The whole request for one question."""
        fields = self.sampling.fields()
        extra = {"add_generation_prompt": True} if self.style == "chat" else {}
        return {"model": model, **self.prompts[index].fields(), **fields, **extra}

    def to_json(self) -> dict[str, Any]:
        """The account of itself that is written before the records: by digest where it is long."""
        return {
            "name": self.name,
            "source": dict(self.source),
            "count": len(self.questions),
            "questions": digest_of_set(self.questions),
            "shots": [shot.digest for shot in self.shots],
            "prompts": digest_of([prompt.digest for prompt in self.prompts]),
            "style": self.style,
            "sampling": self.sampling.fields(),
            "extraction": extract.VERSION,
            "concurrency": self.concurrency,
        }

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` over everything that decides what is asked and how the answers are read."""
        return pinned_digest(self.to_json())


def pinned_digest(plan: Mapping[str, Any]) -> str:
    return digest_of({key: plan.get(key) for key in PINNED})
