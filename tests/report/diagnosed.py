"""Run directories of a diagnosis: real files of the product's own writers, with looks as a test wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oracle.answers import answer, record, shifted

from report.stored import lane, write_run
from vst.lanes.diagnose.found import Diagnosis, Look
from vst.lanes.diagnose.judge import checks
from vst.oracle.compare import difference

FIRST = record(answer(prompt=(1, 2, 3)), answer(prompt=(4, 5, 6)), claim="A")
WRONG = shifted(FIRST, 0.5)


def look(what: str, equal: bool, left_out: tuple[str, ...] = ()) -> Look:
    apart = difference(FIRST if equal else WRONG, FIRST, 0.0).to_json()
    return Look(what, left_out, 3, f"record-diagnose-{what}.json", "record-model-1.json", apart)


def diagnosed(**changes: Any) -> Diagnosis:
    found = {
        "limit": 12, "pushes": 3, "mode": "transition", "why": ("tied head",), "parts": ("embedding",),
        "tensors": ("model.embed_tokens.weight",), "minimal": True, "same_wrong": True,
        "looks": [
            look("identity", True), look("to_b", False), look("kept", True, ("embedding",)), look("reload", False),
        ],
    }  # fmt: skip
    return Diagnosis(**{**found, **changes})


def run(path: Path, found: Diagnosis, name: str = "zoo-qwen2-tied") -> Path:
    files = {one.record: (FIRST if one.equal else WRONG).to_json() for one in found.looks}
    return write_run(path, [lane("diagnose", *checks(found, 0.0))], name=name, files={
        **files, "diagnosis.json": found.to_json(), "record-model-1.json": FIRST.to_json(),
    })  # fmt: skip
