"""Sidecars: one in-toto Statement v1 beside each file of a run.

Source: the in-toto attestation framework, ``spec/v1/statement.md``; the predicate is ours and has a version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vst.provenance.atomic import file_sha256

SUFFIX = ".meta.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:vst:artifact:v1"


@dataclass(frozen=True)
class Request:
    """What the user asked for: the command line as a list, the overrides, the digest of the resolved configuration."""

    argv: tuple[str, ...]
    overrides: tuple[str, ...]
    config_digest: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def statement(
    path: Path,
    name: str,
    verdict: Mapping[str, Any],
    request: Request,
    inputs: Mapping[str, Any],
    defaults: Sequence[Mapping[str, str]],
) -> dict[str, Any]:
    """The statement about the file at ``path``, named ``name`` relative to the run directory."""
    subject = {"name": name, "digest": {"sha256": file_sha256(path)}, "annotations": {"bytes": path.stat().st_size}}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [subject],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "verdict": dict(verdict),
            "request": request.to_json(),
            "defaults": list(defaults),
            "inputs": dict(inputs),
        },
    }
