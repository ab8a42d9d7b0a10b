"""Sidecars: one in-toto Statement v1 beside each file of a run.

Source: the in-toto attestation framework, ``spec/v1/statement.md``; the predicate is ours and has a version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vst.provenance.encoding import to_bytes

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
        return {**asdict(self), "argv": list(self.argv), "overrides": list(self.overrides)}


@dataclass(frozen=True)
class Subject:
    """The file that a statement is about: its name in the run directory, SHA-256 and size in bytes.

    While a run goes on a file may be about to change: ``replaces`` is the digest that it has until then, and of a file
    that ``grows`` the statement covers the first ``bytes``. A file that was drawn from others names each of them with
    its SHA-256 as ``derived_from``.
    """

    name: str
    sha256: str
    bytes: int
    replaces: str | None = None
    grows: bool = False
    derived_from: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        notes: dict[str, Any] = {"bytes": self.bytes}
        if self.replaces is not None:
            notes["replaces"] = self.replaces
        if self.grows:
            notes["grows"] = True
        if self.derived_from:
            notes["derived_from"] = [{"name": name, "digest": {"sha256": sha}} for name, sha in self.derived_from]
        return {"name": self.name, "digest": {"sha256": self.sha256}, "annotations": notes}


def statement(subject: Subject, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """The in-toto statement about one file; its ``seal`` is the SHA-256 of itself without it."""
    named = subject.to_json()
    content = {
        "_type": STATEMENT_TYPE,
        "subject": [named],
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(predicate),
    }
    seal = hashlib.sha256(to_bytes(content)).hexdigest()
    return {**content, "subject": [{**named, "annotations": {**named["annotations"], "seal": seal}}]}
