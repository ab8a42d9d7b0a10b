"""The run directory: the only place where a run writes, and the record of what it wrote.

``run.json`` and a sidecar for each file are there from the first moment as ``in_progress`` and are replaced whole at
the end, whatever the end is. ``events.jsonl`` grows line by line, so that a run that was killed can still be read. A
sidecar is written before the file that it is about takes its name and says what it replaces: also a run that was killed
between the two can be verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vst.provenance.atomic import StorageFailure, file_sha256, staged, write_atomic
from vst.provenance.encoding import to_bytes as to_bytes
from vst.provenance.encoding import utc_now as utc_now
from vst.provenance.eventlog import EventLog
from vst.provenance.evidence import Evidence
from vst.provenance.journal import Journal
from vst.provenance.predicate import IN_PROGRESS, predicate
from vst.provenance.redaction import Scrubber
from vst.provenance.sidecar import SUFFIX, Request, Subject, statement
from vst.provenance.signing import ENVELOPE, Signer

RUN_FORMAT = "vst-run/1"
LIFECYCLE_FORMAT = "vst-lifecycle/1"
RUN, EVENTS, VERDICT, LIFECYCLE = "run.json", "events.jsonl", "verdict.json", "lifecycle.json"
DRAWN = ("report.html", "checklist.md")
"""Files that are drawn from all others when the verdict is there."""

Draw = Callable[[Path], Mapping[str, bytes]]


def drawn_from(name: str, names: Iterable[str]) -> list[str]:
    """What the file ``name`` is drawn from: for a page all of ``names`` that are not drawn themselves, else nothing."""
    return sorted(set(names) - set(DRAWN)) if name in DRAWN else []


class RunDir:
    """One run's files and, as ``evidence``, what the run learned about itself.

    ``failure`` says why the event log could not be written any more; the first time this raises StorageFailure.
    """

    def __init__(
        self, path: Path, request: Request, scrubber: Scrubber | None = None, signer: Signer | None = None
    ) -> None:
        self.path = path
        self.request = request
        self.scrubber = scrubber or Scrubber()
        self.evidence = Evidence()
        self.failure: str | None = None
        self._signer = signer
        self._begun = (utc_now(), time.monotonic())
        self._written: dict[str, str] = {}
        self._journals: list[Journal] = []
        path.mkdir(parents=True, exist_ok=True)
        if (path / RUN).exists():
            raise FileExistsError(f"{path} already holds a run; give hydra.run.dir another directory")
        self._events = EventLog(path / EVENTS)
        self.write(RUN, self._run({"state": IN_PROGRESS, "pid": os.getpid(), "host": socket.gethostname()}))

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def inputs(self) -> dict[str, Any]:
        """What the run works on, filled as it is learned."""
        return self.evidence.inputs

    @property
    def defaults(self) -> list[dict[str, str]]:
        """Values that the tool filled in, each with key, value and from."""
        return self.evidence.defaults

    def event(self, kind: str, **fields: Any) -> None:
        """Append one event with the wall and the monotonic clock; StorageFailure when it cannot be written, once."""
        if self.failure is not None:
            return
        content = {"utc": utc_now(), "monotonic": time.monotonic(), "kind": kind, **fields}
        line = json.dumps(self.scrubber.foreign_tree(content), default=str)
        try:
            self._events.append(line)
        except OSError as error:
            self.failure = f"{self.path / EVENTS} cannot be written: {error.strerror}"
            raise StorageFailure(self.failure) from error

    def write(self, name: str, content: Any) -> Path:
        """Write a JSON file atomically, with its sidecar as in progress; returns its path."""
        return self.write_bytes(name, to_bytes(self.scrubber.tree(content)))

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write any file atomically, with its sidecar as in progress; StorageFailure when it does not fit."""
        path = self.path / name
        subject = Subject(name, hashlib.sha256(data).hexdigest(), len(data), self._written.get(name))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with staged(path, data):
                known = self._predicate(None, {}, None)
                self._seal(subject, known)
            if name != EVENTS:
                self._seal(Subject(EVENTS, *self._events.sealed(), grows=True), known)
        except OSError as error:
            raise StorageFailure(f"{path} cannot be written: {error.strerror}") from error
        self._written[name] = subject.sha256
        return path

    def journal(self, name: str) -> Journal:
        """A log of its own that grows until the run is finished; it gets its sidecar then, as foreign logs do."""
        self._journals.append(Journal(self.path / name, self.scrubber))
        return self._journals[-1]

    def adopt(self, name: str) -> None:
        """Take over a file that somebody wrote line by line, so that ``write_bytes`` may replace it."""
        self._written[name] = file_sha256(self.path / name)

    def finish(self, verdict: Mapping[str, Any], outcome: Mapping[str, Any], draw: Draw | None = None) -> None:
        """Write the verdict, then what ``draw`` makes of the files, the final sidecars, and last ``run.json``, which
        says that all is there.

        StorageFailure when that does not fit: the run stays in progress, and what is there stays readable.
        """
        self.event("finished", verdict=verdict["verdict"], exit_code=outcome["exit_code"])
        try:
            for journal in self._journals:
                journal.close()
            self._clean_foreign()
            self.write(VERDICT, verdict)
            known = self._predicate(verdict, outcome, self._lifecycle())
            self._seal_all([self.path / VERDICT], known)  # pages are drawn from the final facts
            for name, data in (draw(self.path) if draw is not None else {}).items():
                self._add(name, data)
            self._events.close()
            self._seal_all(self._artifacts(), known)
            self._commit({"state": "complete", **outcome, "artifacts": self._listing()}, known)
        except OSError as error:
            raise StorageFailure(f"the run cannot be finished in {self.path}: {error.strerror}") from error

    def _add(self, name: str, data: bytes) -> None:
        """Write something that the run can do without: where it does not fit, nothing of it is left."""
        try:
            self.write_bytes(name, data)
        except StorageFailure as error:
            for path in (self.path / name, self.path / (name + SUFFIX)):
                path.unlink(missing_ok=True)
            self.event("page_failed", error=f"{name}: {error}")

    def _seal_all(self, paths: Iterable[Path], known: Mapping[str, Any]) -> None:
        digests = {str(path.relative_to(self.path)): file_sha256(path) for path in paths}
        for name, sha256 in digests.items():
            sources = tuple((one, digests[one]) for one in drawn_from(name, digests))
            self._seal(Subject(name, sha256, (self.path / name).stat().st_size, derived_from=sources), known)

    def _commit(self, fields: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """``run.json`` takes its name after its sidecar and its signature are there."""
        data = to_bytes(self.scrubber.tree(self._run(fields)))
        sidecar = to_bytes(statement(Subject(RUN, hashlib.sha256(data).hexdigest(), len(data)), known))
        with staged(self.path / RUN, data):
            write_atomic(self.path / (RUN + SUFFIX), sidecar)
            if self._signer is not None:
                write_atomic(self.path / ENVELOPE, self._signer.envelope(sidecar))

    def _run(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "format": RUN_FORMAT,
            "started": self._begun[0],
            "ended": None if fields["state"] == IN_PROGRESS else utc_now(),
            "seconds": round(time.monotonic() - self._begun[1], 3),
            "request": self.request.to_json(),
            "signing": self._signer.describe() if self._signer else None,
            **fields,
        }

    def _predicate(
        self, verdict: Mapping[str, Any] | None, outcome: Mapping[str, Any], lifecycle: Mapping[str, str] | None
    ) -> dict[str, Any]:
        return predicate(self.evidence, self.request, self.scrubber, verdict, outcome, lifecycle)

    def _seal(self, subject: Subject, known: Mapping[str, Any]) -> None:
        write_atomic(self.path / (subject.name + SUFFIX), to_bytes(statement(subject, known)))

    def _lifecycle(self) -> dict[str, str] | None:
        if not self.evidence.timeline.long:
            return None
        path = self.write(LIFECYCLE, {"format": LIFECYCLE_FORMAT, **self.evidence.timeline.whole()})
        return {"name": LIFECYCLE, "sha256": file_sha256(path)}

    def _artifacts(self) -> list[Path]:
        files = (path for path in self.path.rglob("*") if path.is_file() and not path.name.endswith(SUFFIX))
        return sorted(path for path in files if path != self.path / RUN)

    def _listing(self) -> list[dict[str, Any]]:
        return [
            {
                "name": str(path.relative_to(self.path)),
                "bytes": path.stat().st_size,
                "sha256": file_sha256(path),
                "sidecar_sha256": file_sha256(path.with_name(path.name + SUFFIX)),
            }
            for path in self._artifacts()
        ]

    def _clean_foreign(self) -> None:
        """Logs are written by the processes that they are of: mask what they should not have printed."""
        for path in self._artifacts():
            if path.suffix == ".log" and any(line != clean for line, clean in self._cleaned(path)):
                text = "".join(clean for _, clean in self._cleaned(path))
                write_atomic(path, text.encode("utf-8", "surrogateescape"))

    def _cleaned(self, path: Path) -> Iterator[tuple[str, str]]:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            yield from ((line, self.scrubber.foreign(line)) for line in file)
