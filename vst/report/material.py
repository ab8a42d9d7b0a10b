"""What a page is drawn from: the files of one run directory, read within bounds and without trusting any of them.

Everything comes from ``verdict.json`` and its sidecar, the event log, the records and the updates: those are final when
the page of a run is drawn, and the same later, so that the same page can be drawn again. Of ``run.json``, which names
the page's digest and so comes after it, only the start of the run is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vst.errors import ConfigError, VerificationError
from vst.oracle.record import Record
from vst.provenance.atomic import file_sha256
from vst.provenance.rundir import DRAWN, EVENTS, RUN, VERDICT
from vst.provenance.sidecar import SUFFIX
from vst.provenance.signing import ENVELOPE

MAX_RECORDS = 120
MAX_JSON_BYTES = 32 << 20
MAX_LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class File:
    """One file of the run by its name, SHA-256 and size in bytes."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Material:
    """One run as its page needs it; ``omitted`` says what was left out because there was too much of it.

    ``verdict`` is empty when the run left none; ``facts`` are the blocks of the sidecar of ``verdict.json``.
    """

    path: Path
    verdict: Mapping[str, Any]
    facts: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    records: Mapping[str, Record]
    files: tuple[File, ...]
    started: str = ""
    omitted: tuple[str, ...] = ()
    by_name: Mapping[str, File] = field(default_factory=dict)

    def lanes(self) -> list[Mapping[str, Any]]:
        found = self.verdict.get("lanes")
        return [lane for lane in found if isinstance(lane, Mapping)] if isinstance(found, list) else []

    def checks(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Every check with the lane that it belongs to."""
        for lane in self.lanes():
            for check in lane.get("checks", ()):
                yield str(lane.get("lane")), check

    def check(self, id: str) -> Mapping[str, Any] | None:
        """The last check of that name."""
        return next((one for _, one in reversed(list(self.checks())) if one.get("id") == id), None)

    def block(self, *keys: str) -> Mapping[str, Any]:
        """A block of the sidecar by its path; empty where there is none."""
        found: Any = self.facts
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}


def read_material(path: Path) -> Material:
    """Everything that a page shows; ConfigError when ``path`` is not the directory of a run."""
    if not (path / RUN).is_file() and not (path / (VERDICT + SUFFIX)).is_file():
        raise ConfigError(f"{path} is not the directory of a run: it holds no {RUN}")
    omitted: list[str] = []
    sidecar = read_object(path / (VERDICT + SUFFIX)) or {}
    files = tuple(list_files(path))
    return Material(
        path=path,
        verdict=read_object(path / VERDICT) or {},
        facts=sidecar.get("predicate") or {},
        events=tuple(read_events(path / EVENTS, omitted)),
        records=read_records(path, omitted),
        files=files,
        started=str((read_object(path / RUN) or {}).get("started", "")),
        omitted=tuple(omitted),
        by_name={file.name: file for file in files},
    )


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file of bearable size, None when there is none."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            return None
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def read_events(path: Path, omitted: list[str]) -> Iterator[Mapping[str, Any]]:
    """The events that a page shows: everything but the HTTP exchanges and what the publisher said on its way."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            if len(line) > MAX_LINE_BYTES:
                omitted.append(f"a line of {len(line)} bytes in {EVENTS}")
            elif _shown(line):
                event = _object(line)
                if event is not None:
                    yield event


def _shown(line: bytes) -> bool:
    """Whether a whole line may hold an event for the page; most of a long run's do not, and are not parsed."""
    if b'"kind": "http"' in line or not line.endswith(b"\n"):
        return False
    return b'"kind": "publisher_' not in line or b'"kind": "publisher_done"' in line


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def read_records(path: Path, omitted: list[str]) -> dict[str, Record]:
    """The records by file name; beyond ``MAX_RECORDS`` the first and the last of them."""
    names = sorted(file.name for file in path.glob("record-*.json") if not file.name.endswith(SUFFIX))
    if len(names) > MAX_RECORDS:
        omitted.append(f"{len(names) - MAX_RECORDS} of {len(names)} records, those in the middle")
        names = [*names[: MAX_RECORDS // 2], *names[-MAX_RECORDS // 2 :]]
    found = {}
    for name in names:
        try:
            found[name] = Record.from_json(read_object(path / name) or {})
        except VerificationError as error:
            omitted.append(f"{name}: {error}")
    return found


def list_files(path: Path) -> Iterator[File]:
    """The files of the run with their digests, without sidecars, the pages themselves, and what comes after them."""
    later = {*DRAWN, RUN, ENVELOPE}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if file.is_file() and not file.is_symlink() and not name.endswith(SUFFIX) and name not in later:
            yield File(name, file_sha256(file), file.stat().st_size)
