"""The run directory: the only place where a run writes, and the record of what it wrote.

``run.json`` and a sidecar for each file are there from the first moment as ``in_progress`` and are replaced whole at
the end, whatever the end is. ``events.jsonl`` grows line by line, so that a run that was killed can still be read.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from vst.provenance.atomic import file_sha256, write_atomic
from vst.provenance.sidecar import SUFFIX, Request, statement

RUN_FORMAT = "vst-run/1"


def utc_now() -> str:
    """The wall clock as RFC 3339 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_bytes(content: Any) -> bytes:
    """Canonical JSON for files: sorted keys, readable, NaN refused."""
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


class RunDir:
    """One run's files. ``inputs`` is filled by the run as it learns what it works on."""

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        self.request = request
        self.inputs: dict[str, Any] = {}
        self.defaults: list[dict[str, str]] = []
        self._begun = (utc_now(), time.monotonic())
        self._lock = threading.Lock()
        path.mkdir(parents=True, exist_ok=True)
        if (path / "run.json").exists():
            raise FileExistsError(f"{path} already holds a run; give hydra.run.dir another directory")
        self._events = (path / "events.jsonl").open("a", encoding="utf-8")
        self._write_run({"state": "in_progress", "pid": os.getpid()}, {"verdict": "in_progress"})

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def event(self, kind: str, **fields: Any) -> None:
        """Append one event with the wall and the monotonic clock."""
        line = json.dumps({"utc": utc_now(), "monotonic": time.monotonic(), "kind": kind, **fields}, default=str)
        with self._lock:
            self._events.write(line + "\n")
            self._events.flush()

    def write(self, name: str, content: Any) -> Path:
        """Write a JSON file atomically, with its sidecar as in progress; returns its path."""
        path = self.path / name
        write_atomic(path, to_bytes(content))
        self._write_sidecar(path, {"verdict": "in_progress"})
        return path

    def finish(self, verdict: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """Write the verdict, then the sidecars of all files, then ``run.json``, which says that all is there."""
        self.event("finished", verdict=verdict["verdict"], exit_code=outcome["exit_code"])
        self._events.close()
        write_atomic(self.path / "verdict.json", to_bytes(verdict))
        summary = verdict_block(verdict)
        for path in self._artifacts():
            self._write_sidecar(path, summary)
        self._write_run({"state": "complete", **outcome, "artifacts": self._listing()}, summary)

    def _artifacts(self) -> list[Path]:
        files = (path for path in self.path.rglob("*") if path.is_file() and not path.name.endswith(SUFFIX))
        return sorted(path for path in files if path.name != "run.json" or path.parent != self.path)

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

    def _write_sidecar(self, path: Path, verdict: Mapping[str, Any]) -> None:
        name = str(path.relative_to(self.path))
        content = statement(path, name, verdict, self.request, self.inputs, self.defaults)
        write_atomic(path.with_name(path.name + SUFFIX), to_bytes(content))

    def _write_run(self, fields: Mapping[str, Any], verdict: Mapping[str, Any]) -> None:
        ended = None if fields["state"] == "in_progress" else utc_now()
        content = {
            "format": RUN_FORMAT,
            "started": self._begun[0],
            "ended": ended,
            "seconds": round(time.monotonic() - self._begun[1], 3),
            "request": self.request.to_json(),
            **fields,
        }
        path = self.path / "run.json"
        write_atomic(path, to_bytes(content))
        self._write_sidecar(path, verdict)


def verdict_block(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The short form of a verdict that goes into every sidecar: the word, the cause, each check's outcome."""
    checks = {check["id"]: check["outcome"] for lane in verdict["lanes"] for check in lane["checks"]}
    return {
        "verdict": verdict["verdict"],
        "lane": verdict["lane"],
        "cause": verdict["cause"],
        "server_state": verdict["server"]["state"],
        "checks": checks,
    }
