"""Run directories for pages: real files of the product's own writers, with verdicts as a test wants them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from provenance.stored_run import StoredRun

from vst.provenance.composed import RESOLVED
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.report.files import draw_files
from vst.verdict import Check, LaneVerdict, Verdict

SERVER = {"state": "tainted", "holds": "part of checkpoint", "left": "paused"}


def write_run(
    path: Path,
    lanes: list[LaneVerdict],
    server: dict[str, Any] | None = None,
    name: str = "modela",
    interrupted: int | None = None,
    layout: str = "sha256:" + "a" * 64,
    config: bytes = b"{}\n",
    files: dict[str, Any] | None = None,
    raw: dict[str, bytes] | None = None,
) -> Path:
    """A finished run with these lanes, drawn and sealed as the product does it."""
    digest = "sha256:" + hashlib.sha256(config).hexdigest()
    run = RunDir(path, Request(("vst", "lane=L3"), ("lane=L3",), digest))
    run.write_bytes(RESOLVED, config)
    run.evidence.source = run.evidence.machine = {"unknown": {}}
    run.inputs["model"] = {
        "path": f"/models/{name}", "declared_name": name, "declared_revision": None, "layout_digest": layout,
        "content_digest": "blake3:" + "b" * 64, "bytes": 10, "shards": [], "files": {},
    }  # fmt: skip
    for file, body in (files or {}).items():
        run.write(file, body)
    for file, data in (raw or {}).items():
        run.write_bytes(file, data)
    for check in {check.evidence for lane in lanes for check in lane.checks if check.evidence} - set(files or {}):
        run.write_bytes(str(check), b"{}\n")
    for lane in lanes:
        run.event("lane", lane=lane.lane, verdict=lane.word)
    verdict = Verdict("ladder", lanes, interrupted=interrupted)
    content = {
        "format": "vst-verdict/1", "lane": "ladder", "verdict": verdict.word,
        "cause": verdict.cause.value if verdict.cause else None, "interrupted": interrupted is not None,
        "exit_code": verdict.exit_code, "noise_floor": 0.0, "covered": None, "server": server or SERVER,
        "lanes": [lane.to_json() for lane in verdict.lanes],
    }  # fmt: skip
    outcome = {key: content[key] for key in ("verdict", "exit_code", "server")}
    run.finish(content, {**outcome, "attempt": 1, "error": None}, draw_files)
    return path


def lane(name: str, *checks: Check) -> LaneVerdict:
    return LaneVerdict(name, checks)


def ladder(path: Path, spoilt: dict[str, float] | None = None, noise: float = 0.0) -> Path:
    """A whole ladder with records, made by the lanes' own judging functions; ``spoilt`` records answer otherwise."""
    return StoredRun(path, spoilt, noise).finish(draw=draw_files)
