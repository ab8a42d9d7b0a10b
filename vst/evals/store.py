"""The file of an evaluation: JSON lines, first what was asked of whom, then a record for each question as it arrives.

A file that was cut keeps every record whose line is whole. The last line, written at the end with all records in order,
says that nothing is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.evals.plan import pinned_digest
from vst.evals.question import digest_of
from vst.evals.record import EvalRecord, line
from vst.provenance.atomic import StorageFailure

FORMAT = "vst-evaluation/1"


@dataclass(frozen=True)
class Evaluation:
    """The records of one state, in the order of the questions; ``complete`` says that the last line was there.

    ``drafted`` is what a server that decodes speculatively proposed and accepted for all of them.
    """

    header: Mapping[str, Any]
    records: tuple[EvalRecord, ...]
    complete: bool
    drafted: Mapping[str, Any] | None = None

    @property
    def plan(self) -> Mapping[str, Any]:
        return dict(self.header["plan"])

    @property
    def claim(self) -> str:
        return str(self.header["claim"])

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of what was asked and answered, whenever and however often it was tried."""
        return digest_of([pinned_digest(self.plan), [record.content() for record in self.records]])

    @property
    def missing(self) -> int:
        return int(self.plan["count"]) - len(self.records)

    @property
    def failed(self) -> tuple[EvalRecord, ...]:
        return tuple(record for record in self.records if not record.answered)

    def right(self, rule: str) -> int:
        return sum(record.right(rule) for record in self.records)

    def to_bytes(self) -> bytes:
        """The whole file of an evaluation that has come to its end."""
        end = {"kind": "end", "records": len(self.records), "failed": len(self.failed), "digest": self.digest}
        end["drafted"] = self.drafted
        return b"".join([line(self.header), *(line(record.to_json()) for record in self.records), line(end)])


def make_header(claim: str, plan: Mapping[str, Any], server: Mapping[str, Any]) -> dict[str, Any]:
    """The first line: what the server was meant to hold, what was asked, and which server it was."""
    return {"kind": "header", "format": FORMAT, "claim": claim, "plan": dict(plan), "server": dict(server)}


class Journal:
    """A file that grows by one record at a time; each is handed to the system whole before the next one is asked."""

    def __init__(self, path: Path, header: Mapping[str, Any], done: Sequence[EvalRecord] = ()) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        self._write(line(header))
        for record in done:
            self.append(record)

    def append(self, record: EvalRecord) -> None:
        self._write(line(record.to_json()))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            raise StorageFailure(f"{self._path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        os.fsync(self._fd)
        os.close(self._fd)


def read_evaluation(path: Path) -> Evaluation:
    """The evaluation in a file, also one that was cut; VerificationError says what is wrong with the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise VerificationError(f"{path} cannot be read as an evaluation: {error}") from error
    try:
        return parse_evaluation(data)
    except VerificationError as error:
        raise VerificationError(f"{path}: {error}") from error


def parse_evaluation(data: bytes) -> Evaluation:
    """The evaluation in these bytes; VerificationError when they are none, or were changed after they were written."""
    header, *rest = _lines(data)
    if header.get("format") != FORMAT or header.get("kind") != "header" or not _is_plan(header.get("plan")):
        raise VerificationError(f"not an evaluation: expected a first line of format {FORMAT!r}")
    end = rest.pop() if rest and rest[-1].get("kind") == "end" else None
    records = [EvalRecord.from_json(one) for one in rest]
    drafted = end.get("drafted") if end is not None else None
    ordered = tuple(sorted(records, key=lambda record: record.index))
    found = Evaluation(header, ordered, end is not None, drafted)
    _check(found, end)
    return found


def _is_plan(plan: Any) -> bool:
    kinds = {"count": int, "sampling": Mapping}
    return isinstance(plan, Mapping) and all(isinstance(plan.get(key), kind) for key, kind in kinds.items())


def _lines(data: bytes) -> list[Mapping[str, Any]]:
    """All whole lines as objects; a last line without its end was cut and counts as none."""
    whole = data[: data.rfind(b"\n") + 1].splitlines()
    found = []
    for number, one in enumerate(whole, 1):
        try:
            content = json.loads(one)
        except ValueError as error:
            raise VerificationError(f"line {number} of the evaluation is damaged: {error}") from error
        if not isinstance(content, Mapping):
            raise VerificationError(f"line {number} of the evaluation is not an object")
        found.append(content)
    if not found:
        raise VerificationError("not an evaluation: it has no whole line")
    return found


def _check(found: Evaluation, end: Mapping[str, Any] | None) -> None:
    indexes = [record.index for record in found.records]
    if len(set(indexes)) != len(indexes) or any(index >= found.plan["count"] for index in indexes):
        raise VerificationError("an evaluation has two records of one question, or one of a question that is not asked")
    if end is not None and (end.get("digest") != found.digest or found.missing):
        raise VerificationError("the evaluation is damaged: its last line does not fit its records")
