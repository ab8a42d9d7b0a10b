"""What a state answers to each prompt of a workload, learned from a load that nothing disturbed. Pure functions.

Every prompt is asked several times beside others, first with an empty cache and then with a warm one. How far one
token's log-probability moves between these is the spread: greedy answers of one state may part where two candidates
are closer than both can move, and nowhere else. Where log-probabilities lie on a grid, as those of bfloat16 logits do,
each can move by one step of it, also if that was not seen while they were learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vst.errors import VerificationError
from vst.load.seen import Candidate, Seen
from vst.load.workload import Workload

LEADS = 16
"""So many leads that lie on a grid do not do so by chance."""
OFF_GRID = 0.01
"""How far from a multiple of the step, in steps, rounding may put a lead."""


@dataclass(frozen=True)
class Path:
    """One greedy answer: its tokens, their log-probabilities, and the likeliest other candidate at each position."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    runners: tuple[Candidate | None, ...]


@dataclass(frozen=True)
class Expected:
    """The answers of the state called ``claim``, one for each prompt; ``spread`` in nats over ``repeats`` of each."""

    claim: str
    paths: tuple[Path, ...]
    spread: float
    repeats: int

    @property
    def window(self) -> float:
        """The largest lead, in nats, that two candidates' log-probabilities can make up by moving."""
        return 2 * max(self.spread, grid(self.paths))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Expected:
        paths = tuple(
            Path(
                tuple(int(token) for token in path["tokens"]),
                tuple(float(value) for value in path["logprobs"]),
                tuple(None if one is None else (int(one[0]), float(one[1])) for one in path["runners"]),
            )
            for path in data["paths"]
        )
        return Expected(str(data["claim"]), paths, float(data["spread"]), int(data["repeats"]))


def learn(claim: str, workload: Workload, answers: Sequence[Seen]) -> Expected:
    """The expected answers of an undisturbed state; VerificationError when it does not answer alike, or not enough."""
    grouped = [[one for one in answers if one.prompt == prompt] for prompt in range(len(workload.prompts))]
    for prompt, group in enumerate(grouped):
        if len(group) < 2:
            raise VerificationError(f"prompt {prompt} was answered {len(group)} time(s), expected at least 2")
        for one in group:
            if fault := unsound(one, workload.output_tokens):
                raise VerificationError(f"undisturbed answer {one.number} to prompt {prompt}: {fault}")
    paths = tuple(Path(group[0].tokens, group[0].logprobs, group[0].runners) for group in grouped)
    spread = max(_apart(path, one) for path, group in zip(paths, grouped, strict=True) for one in group)
    known = Expected(claim, paths, spread, min(len(group) for group in grouped))
    for path, group in zip(paths, grouped, strict=True):
        for one in group:
            _same(path, one, known.window)
    return known


def unsound(one: Seen, wanted: int) -> str | None:
    """Why an answer is not a whole one, whatever its tokens are; None when it is."""
    if one.error is not None:
        return one.error
    if not one.closed:
        return f"it was not closed: {len(one.tokens)} tokens, then nothing"
    if len(one.tokens) != wanted or one.finish != "length":
        return f"{len(one.tokens)} tokens, finish reason {one.finish!r}; expected {wanted} and 'length'"
    return contradiction(one)


def contradiction(one: Seen) -> str | None:
    """Where an answer contradicts itself: its usage counts other tokens than it holds."""
    if one.completion_tokens is not None and one.completion_tokens != len(one.tokens):
        return f"it says {one.completion_tokens} completion tokens and holds {len(one.tokens)}"
    return None


def parting(tokens: Sequence[int], path: Path) -> int:
    """The first position at which tokens part from a path; the length of the shorter when they do not."""
    for position, (one, other) in enumerate(zip(tokens, path.tokens, strict=False)):
        if one != other:
            return position
    return min(len(tokens), len(path.tokens))


def near_tie(path: Path, position: int, token: int, window: float) -> bool:
    """Whether ``token`` may stand at ``position`` instead: it is the runner-up there and behind by no more than
    ``window``."""
    runner = path.runners[position]
    return runner is not None and runner[0] == token and path.logprobs[position] - runner[1] <= window


def grid(paths: Sequence[Path]) -> float:
    """The step of the grid on which the leads of all tokens over their runners-up lie, in nats; 0 where there is none.

    It is the smallest lead, if every other one is a multiple of it.
    """
    pairs = ((lead, runner) for path in paths for lead, runner in zip(path.logprobs, path.runners, strict=True))
    leads = [lead - runner[1] for lead, runner in pairs if runner is not None and lead > runner[1]]
    step = min(leads, default=0.0)
    regular = len(leads) >= LEADS and all(abs(lead / step - round(lead / step)) < OFF_GRID for lead in leads)
    return step if regular else 0.0


def _apart(path: Path, one: Seen) -> float:
    shared = parting(one.tokens, path)
    pairs = zip(path.logprobs[:shared], one.logprobs[:shared], strict=True)
    return max((abs(a - b) for a, b in pairs), default=0.0)


def _same(path: Path, one: Seen, window: float) -> None:
    at = parting(one.tokens, path)
    if at < len(path.tokens) and not near_tie(path, at, one.tokens[at], window):
        raise VerificationError(
            f"the undisturbed state does not repeat: prompt {one.prompt}, position {at}: token {one.tokens[at]} in "
            f"answer {one.number}, {path.tokens[at]} before, not within {window:g}; no load can be judged by it"
        )
