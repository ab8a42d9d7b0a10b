"""Following the chain: the reference, the snapshot and the run before, as far as they can be reached from here.

What cannot be reached is a note. What can be reached and is another one does not hold, except for a reference that was
taken again and answers alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.provenance.atomic import file_sha256
from vst.provenance.bundle import Bundle
from vst.provenance.links import REFERENCE
from vst.provenance.report import Report
from vst.provenance.rundir import RUN
from vst.provenance.sidecar import SUFFIX
from vst.snapshot import snapshot_verify
from vst.snapshot.facts import read_manifest


def follow_chain(bundle: Bundle, known: Mapping[str, Any], report: Report) -> None:
    """Check every link that the predicate names."""
    chain = known.get("chain")
    links = {"reference": _reference, "snapshot": _snapshot, "previous": _previous}
    for name, follow in links.items():
        link = chain.get(name) if isinstance(chain, Mapping) else None
        if isinstance(link, Mapping):
            try:
                follow(bundle, link, report)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                report.wrong(f"chain.{name}", f"is malformed: {type(error).__name__}: {error}")
            except OSError as error:
                report.wrong(f"chain.{name}", f"cannot be read: {error}")


def _reference(bundle: Bundle, link: Mapping[str, Any], report: Report) -> None:
    name = link["name"]
    if name != REFERENCE or not bundle.regular(name) or bundle.sha256(name) != link["sha256"]:
        report.wrong("chain.reference", f"{name} is not the record that the run was judged by")
        return
    if link["origin"] is None:
        return
    origin = Path(link["origin"])
    if not origin.is_file():
        report.notes.append(f"chain.reference: {origin} cannot be reached from here; its record is in the bundle")
    elif file_sha256(origin) != link["origin_sha256"]:
        if _answers(json.loads(origin.read_bytes())) == _answers(bundle.json(name)):
            report.notes.append(f"chain.reference: {origin} was written again since, with the same answers")
        else:
            report.wrong("chain.reference", f"{origin} is no longer the reference that the run used")


def _answers(content: Any) -> Any:
    record = content.get("record", content) if isinstance(content, Mapping) else None
    return (record.get("probes"), record.get("answers")) if isinstance(record, Mapping) else None


def _snapshot(bundle: Bundle, link: Mapping[str, Any], report: Report) -> None:
    path = Path(link["manifest"])
    if not path.is_file():
        report.notes.append(f"chain.snapshot: {path} cannot be reached from here")
        return
    try:
        manifest = read_manifest(path)
    except VerificationError as error:
        report.wrong("chain.snapshot", str(error))
        return
    if manifest.digest != link["sha256"]:
        report.wrong("chain.snapshot", f"{path} has sha256 {manifest.digest}, the run used {link['sha256']}")
    for problem in snapshot_verify.artifact_problems(manifest):
        report.wrong("chain.snapshot", problem)


def _previous(bundle: Bundle, link: Mapping[str, Any], report: Report) -> None:
    directory = Path(link["path"])
    if not (directory / RUN).is_file():
        report.notes.append(f"chain.previous: {directory} cannot be reached from here")
        return
    for name, key in ((RUN, "sha256"), (RUN + SUFFIX, "sidecar_sha256")):
        found = file_sha256(directory / name)
        if found != link[key]:
            report.wrong("chain.previous", f"{directory / name} has sha256 {found}, the run followed {link[key]}")
