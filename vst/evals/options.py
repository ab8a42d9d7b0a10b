"""The configuration of an evaluation: names and types; the values are in ``conf/eval/``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class EvalConf:
    """What is asked in L5 and ``lane=eval``, and how two evaluations are compared.

    ``kind``: ``questions`` (a file, or the embedded set where ``dataset`` is null) or ``lm_eval`` (a task of it).
    ``reference`` is an evaluation of B by a cold server, null takes it from the cache or a cold server; ``resume`` is
    an evaluation that was cut.
    """

    kind: str = MISSING
    name: str = MISSING
    dataset: str | None = MISSING
    limit: int | None = None
    shots_dataset: str | None = None
    shots: int = MISSING
    style: str = MISSING
    extraction: str = MISSING
    max_tokens: int = MISSING
    temperature: float = MISSING
    top_p: float = MISSING
    seed: int = MISSING
    stop: list[str] = field(default_factory=list)
    concurrency: int = MISSING
    retries: int = MISSING
    request_timeout_s: float = MISSING
    alpha: float = MISSING
    margin: float = MISSING
    power: float = MISSING
    draft_margin: float = MISSING
    reference: str | None = None
    reference_cache: bool = MISSING
    resume: str | None = None
    task: str | None = None
    include_path: str | None = None
    timeout_s: float = MISSING


def eval_problems(conf: EvalConf) -> list[str]:
    """Everything in this group that cannot be, each with its key."""
    choices: dict[str, tuple[str, ...]] = {
        "kind": ("questions", "lm_eval"),
        "style": ("completion", "chat"),
        "extraction": ("strict", "flexible"),
    }
    found = [
        f"eval.{key}={getattr(conf, key)}: expected one of {', '.join(options)}"
        for key, options in choices.items()
        if getattr(conf, key) not in options
    ]
    least: dict[str, Any] = {"shots": 0, "max_tokens": 1, "concurrency": 1, "retries": 0, "temperature": 0, "limit": 1}
    found += [
        f"eval.{key}={value}: must be at least {bound}"
        for key, bound in least.items()
        if (value := getattr(conf, key)) is not None and value < bound
    ]
    for key in ("request_timeout_s", "timeout_s"):
        if not 0 < (value := getattr(conf, key)) < math.inf:
            found.append(f"eval.{key}={value}: must be positive")
    for key in ("alpha", "margin", "power", "draft_margin"):
        if not 0 < (value := getattr(conf, key)) < 1:
            found.append(f"eval.{key}={value}: must be between 0 and 1")
    if not 0 < conf.top_p <= 1:
        found.append(f"eval.top_p={conf.top_p}: must be above 0 and at most 1")
    return found
