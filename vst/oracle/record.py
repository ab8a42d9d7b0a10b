"""Records: a server's answers to all probes in one state, as plain data that can be stored and compared offline."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vst.errors import TransportError, VerificationError
from vst.oracle.probes import ProbeSet
from vst.server.client import ControlPlane, HttpFailure

FORMAT = "vst-record/1"

NOT_A_NUMBER = "Out of range float values are not JSON compliant"
"""How Python's json refuses NaN and infinity; vLLM passes it on as its answer (measured with 0.32: status 400)."""


@dataclass(frozen=True)
class Answer:
    """One probe's answer.

    ``prompt_logprobs`` are those of the prompt's own tokens from the second on; ``top`` holds for each generated
    position the likeliest (token, log-probability) pairs; ``cached_tokens`` is None where the server does not report
    it. ``unwritten`` makes the answer of a server that computed something that is no number and so could not write it.
    """

    prompt: tuple[int, ...]
    prompt_logprobs: tuple[float, ...]
    output: tuple[int, ...]
    output_logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]
    cached_tokens: int | None

    def finite(self) -> bool:
        return all(math.isfinite(value) for value in (*self.prompt_logprobs, *self.output_logprobs))

    @staticmethod
    def unwritten(prompt: tuple[int, ...]) -> Answer:
        """Nothing was generated that could be read, and no log-probability of the prompt is known to be a number."""
        return Answer(prompt, (math.nan,) * (len(prompt) - 1), (), (), (), None)


@dataclass(frozen=True)
class Record:
    """The answers of one server in one state; ``claim`` says what it was meant to hold, ``probes`` is their digest."""

    claim: str
    probes: str
    answers: tuple[Answer, ...]

    def finite(self) -> bool:
        return all(answer.finite() for answer in self.answers)

    def same_answers(self, other: Record) -> bool:
        """Whether both hold the very same answers, NaN where the other has NaN, which Python finds unequal."""
        return bool(_writable(asdict(self))["answers"] == _writable(asdict(other))["answers"])

    def to_json(self) -> dict[str, Any]:
        """As JSON values; what is not finite, which JSON has no number for, becomes ``"nan"``, ``"inf"`` or ``"-inf"``.
        """
        return {"format": FORMAT, **_writable(asdict(self))}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        """Read a stored record; VerificationError when it is not one."""
        if data.get("format") != FORMAT:
            raise VerificationError(f"not a record: format is {data.get('format')!r}, expected {FORMAT!r}")
        try:
            record = Record(str(data["claim"]), str(data["probes"]), tuple(_answer(one) for one in data["answers"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise VerificationError(f"damaged record: {type(error).__name__}: {error}") from error
        for number, answer in enumerate(record.answers):
            if not _whole(answer):
                raise VerificationError(f"damaged record: the parts of answer {number} have lengths that do not agree")
        return record


def _writable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _writable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_writable(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _whole(answer: Answer) -> bool:
    """Whether there is one log-probability for each token that has one, and one list of candidates."""
    generated = {len(answer.output), len(answer.output_logprobs), len(answer.top)}
    return len(generated) == 1 and len(answer.prompt_logprobs) == len(answer.prompt) - 1


def _answer(data: Mapping[str, Any]) -> Answer:
    return Answer(
        prompt=tuple(int(token) for token in data["prompt"]),
        prompt_logprobs=tuple(float(value) for value in data["prompt_logprobs"]),
        output=tuple(int(token) for token in data["output"]),
        output_logprobs=tuple(float(value) for value in data["output_logprobs"]),
        top=tuple(tuple((int(token), float(value)) for token, value in position) for position in data["top"]),
        cached_tokens=data["cached_tokens"],
    )


def request(model: str, prompt: tuple[int, ...], probes: ProbeSet) -> dict[str, Any]:
    """The completion request of one probe: every sampling field is given, so that no default of the server decides."""
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": probes.output_tokens,
        "min_tokens": probes.output_tokens,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": probes.seed,
        "n": 1,
        "stream": False,
        "ignore_eos": True,
        "logprobs": probes.top_k,
        "prompt_logprobs": 0,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
        "add_special_tokens": False,
    }


def take_record(control: ControlPlane, model: str, probes: ProbeSet, claim: str, timeout_s: float) -> Record:
    """Ask all probes one after the other, on an idle server, and return what was answered."""
    answers = []
    for prompt in probes.prompts:
        try:
            body = control.post("/v1/completions", request(model, prompt, probes), timeout_s=timeout_s)
        except HttpFailure as failure:
            if not _no_number(failure):
                raise
            answers.append(Answer.unwritten(prompt))
        else:
            answers.append(read_answer(body, prompt, probes.output_tokens))
    return Record(claim, probes.digest, tuple(answers))


def _no_number(failure: HttpFailure) -> bool:
    """Whether the server says of its own answer that a number in it is none: that is what it computed, not a fault of
    the network.
    """
    try:
        error = json.loads(failure.body)["error"]
        said = error["message"] if isinstance(error, Mapping) else error
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(said, str) and said.startswith(NOT_A_NUMBER)


def read_answer(body: Any, prompt: tuple[int, ...], output_tokens: int) -> Answer:
    """The answer in a completion's body; TransportError when the body is not a whole answer to this probe."""
    try:
        choice = body["choices"][0]
        answer = Answer(
            prompt=prompt,
            prompt_logprobs=tuple(_prompt_logprobs(choice["prompt_logprobs"], prompt)),
            output=tuple(_token(text) for text in choice["logprobs"]["tokens"]),
            output_logprobs=tuple(float(value) for value in choice["logprobs"]["token_logprobs"]),
            top=tuple(_top(position) for position in choice["logprobs"]["top_logprobs"]),
            cached_tokens=cached_tokens(body.get("usage")),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TransportError(f"/v1/completions: not an answer to the probe: {type(error).__name__}: {error}") from error
    if len(answer.output) != output_tokens or not _whole(answer):
        raise TransportError(
            f"/v1/completions: {len(answer.output)} tokens with {len(answer.output_logprobs)} log-probabilities and "
            f"{len(answer.top)} lists of candidates, and {len(answer.prompt_logprobs)} prompt log-probabilities, "
            f"expected {output_tokens} and {len(prompt) - 1}"
        )
    return answer


def _prompt_logprobs(positions: list[Any], prompt: tuple[int, ...]) -> list[float]:
    return [float(position[str(token)]["logprob"]) for position, token in zip(positions[1:], prompt[1:], strict=True)]


def _token(text: str) -> int:
    return int(text.removeprefix("token_id:"))


def _top(position: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    pairs = [(_token(text), float(value)) for text, value in position.items()]
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def cached_tokens(usage: Any) -> int | None:
    """The cached prompt tokens in a completion's ``usage``; None where the server does not report them."""
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return cached if isinstance(cached, int) and not isinstance(cached, bool) else None
