"""lm-eval: running a task of it against a server's completions, and reading its log of samples as records of ours.

Its log holds for each question what was asked, what was answered, and what each of its filters read; it holds neither
token ids nor how an answer ended, and these stay unknown. Read from lm-eval 0.4.13.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.evals import extract, number
from vst.evals.plan import Sampling
from vst.evals.question import digest_of
from vst.evals.record import ANSWERED, FAILED, EvalRecord
from vst.evals.store import Evaluation, make_header
from vst.provenance.atomic import file_sha256

DRAWN = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed",
)  # fmt: skip
NOTHING = "[LMEVAL_NONE_ANSWER]"
"""What lm-eval writes for an answer without text, unless its environment says otherwise; ours sets it to this."""


def installed() -> bool:
    return find_spec("lm_eval") is not None


def command(
    task: str,
    base_url: str,
    model: str,
    out: Path,
    sampling: Sampling,
    concurrency: int,
    limit: int | None,
    include_path: str | None,
    timeout_s: float,
) -> list[str]:
    """The command line; our sampling fields go along as ``gen_kwargs``, where it stops is the task's own."""
    where = {
        "base_url": f"{base_url}/v1/completions",
        "model": model,
        "num_concurrent": concurrency,
        "max_retries": 1,
        "timeout": round(timeout_s),
        "tokenized_requests": False,
        "tokenizer_backend": "none",
    }
    fields = sampling.fields()
    drawn = {**{key: fields[key] for key in DRAWN}, "max_gen_toks": sampling.max_tokens}
    argv = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", _pairs(where)]
    argv += ["--gen_kwargs", _pairs(drawn), "--tasks", task, "--output_path", str(out), "--log_samples"]
    argv += ["--limit", str(limit)] if limit is not None else []
    return [*argv, "--include_path", include_path] if include_path else argv


def _pairs(values: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())


def find_samples(out: Path, task: str) -> Path:
    """The log of samples that a run left under ``out``; VerificationError without exactly one."""
    found = sorted(out.rglob(f"samples_{task}_*.jsonl"))
    if len(found) != 1:
        raise VerificationError(f"{out} holds {len(found)} logs samples_{task}_*.jsonl, expected one")
    return found[0]


def read_samples(path: Path, claim: str, task: str, server: Mapping[str, Any]) -> Evaluation:
    """The samples of a task as an evaluation; VerificationError when a line is none, or a question has no number."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        asked = [_asked(line) for line in lines]
        if any(one[1] != asked[0][1] for one in asked):
            raise ValueError("its questions were asked with different sampling fields")
        records = _records(lines)
        sampling = dict(asked[0][1])
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise VerificationError(f"{path} is no log of lm-eval's samples: {type(error).__name__}: {error}") from error
    plan = {
        "name": f"lm_eval/{task}",
        "source": {"task": task, "log_sha256": file_sha256(path)},
        "count": len(records),
        "questions": digest_of([record.question for record in records]),
        "shots": "those of the task; they are part of the prompts",
        "prompts": digest_of([record.prompt for record in records]),
        "style": "lm_eval",
        "sampling": sampling,
        "extraction": extract.VERSION,
        "concurrency": None,
    }
    return Evaluation(make_header(claim, plan, server), tuple(records), True)


def _asked(line: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The prompt of a sample and the sampling fields that it was sent with."""
    (arguments,) = line["arguments"].values()
    prompt, sampling = arguments["arg_0"], arguments["arg_1"]
    if not isinstance(prompt, str) or not isinstance(sampling, Mapping):
        raise ValueError(f"document {line['doc_id']} was not asked for a text")
    return prompt, sampling


def _records(lines: Sequence[Mapping[str, Any]]) -> list[EvalRecord]:
    """One record for each document; a document is logged once for each of the task's filters, with one response."""
    by_document: dict[int, EvalRecord] = {}
    for line in sorted(lines, key=lambda line: int(line["doc_id"])):
        found = _record(line)
        if by_document.setdefault(found.index, found) != found:
            raise ValueError(f"document {found.index} is logged with two responses")
    return [replace(record, index=index) for index, record in enumerate(by_document.values())]


def _record(line: Mapping[str, Any]) -> EvalRecord:
    ((text,),) = line["resps"]
    index, expected, (prompt, sampling) = int(line["doc_id"]), _right(str(line["target"])), _asked(line)
    if not isinstance(text, str):
        raise ValueError(f"document {index} has a response that is no text")
    if expected is None:
        raise ValueError(f"document {index} has a target without a number: {str(line['target'])[:80]!r}")
    question = digest_of([line["doc"], line["target"]])
    record = EvalRecord(index, question, digest_of(prompt), expected, ANSWERED, text=text)
    if text == NOTHING:
        return replace(record, outcome=FAILED, text=None, error="lm-eval got an answer without text")
    return record.read(tuple(sampling.get("until") or ()))


def _right(target: str) -> str | None:
    value = extract.strict(target)
    return number.spell(value if value is not None else number.last(target))
