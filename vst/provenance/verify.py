"""Verification of a run directory: hash everything again, then see whether what it says fits together.

Needs neither torch nor vLLM. The digests of all files are in ``run.json``; the digest of ``run.json`` is in its
sidecar; that sidecar must be, byte for byte, what the run would have written; a signature covers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.provenance.block import unexplained
from vst.provenance.bundle import Bundle, expected_names
from vst.provenance.encoding import to_bytes
from vst.provenance.follow import follow_chain
from vst.provenance.predicate import BLOCKS, IN_PROGRESS
from vst.provenance.report import Report
from vst.provenance.rundir import RUN, RUN_FORMAT, VERDICT, drawn_from
from vst.provenance.sidecar import SUFFIX, Subject, statement
from vst.provenance.signature import check_signature
from vst.provenance.unfinished import check_unfinished
from vst.provenance.verdict_consistency import check_verdict

COMPLETE = "complete"


def verify(path: Path, key: bytes | None = None) -> Report:
    """Look at everything in the run directory ``path``; ``key`` is the public key that must have signed it.

    ConfigError when ``path`` is not the directory of a run.
    """
    bundle, report = Bundle.at(path), Report()
    run = bundle.json(RUN)
    if run is None:
        missing = RUN not in bundle.files
        report.wrong(RUN, "is missing" if missing else "is not a JSON object: it was cut or edited")
        check_unfinished(bundle, report)
    elif run.get("state") == IN_PROGRESS:
        report.incomplete = f"{RUN} says in_progress: the run is still going on, or was killed before its end"
        check_unfinished(bundle, report)
    else:
        _check_complete(bundle, run, report, key)
    return report


def _check_complete(bundle: Bundle, run: Mapping[str, Any], report: Report, key: bytes | None) -> None:
    _check_run(bundle, run, report)
    listed = _check_files(bundle, run, report)
    _check_names(bundle, listed, run, report)
    known = _check_sidecars(bundle, listed, report)
    if known is not None:
        check_verdict(bundle, run, known, report)
        follow_chain(bundle, known, report)
    check_signature(bundle, run, report, key)
    report.files = len(listed) + 1
    report.verdict = f"{run.get('verdict')}, exit code {run.get('exit_code')}"


def _check_run(bundle: Bundle, run: Mapping[str, Any], report: Report) -> None:
    """``run.json`` itself: what its sidecar says, spelled as we spell it, and of a format that we know."""
    subject = bundle.subject(RUN)
    if subject is None:
        report.wrong(RUN + SUFFIX, "is missing" if RUN + SUFFIX not in bundle.files else "is not a statement")
    elif subject.sha256 != bundle.sha256(RUN):
        report.wrong(
            RUN, f"has sha256 {bundle.sha256(RUN)}, {RUN}{SUFFIX} says {subject.sha256}: one of them was edited"
        )
    if run.get("format") != RUN_FORMAT or run.get("state") != COMPLETE:
        found = f"{run.get('format')!r} in state {run.get('state')!r}"
        report.wrong(RUN, f"is {found}, expected {RUN_FORMAT!r}, {COMPLETE} or {IN_PROGRESS}")
    elif bundle.read(RUN) != to_bytes(run):
        report.wrong(RUN, "is not written as a run writes it: it was edited")


def _check_files(bundle: Bundle, run: Mapping[str, Any], report: Report) -> list[str]:
    """Every listed file and its sidecar; returns the names of the listed files."""
    entries = run.get("artifacts")
    entries = entries if isinstance(entries, list) else []
    names = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            report.wrong(RUN, f"has an entry that names no file: {str(entry)[:80]}")
            continue
        names.append(entry["name"])
        _check_file(bundle, entry["name"], entry.get("sha256"), report, entry.get("bytes"))
        _check_file(bundle, entry["name"] + SUFFIX, entry.get("sidecar_sha256"), report)
    return names


def _check_file(bundle: Bundle, name: str, sha256: Any, report: Report, size: Any = None) -> None:
    if name not in bundle.files:
        report.wrong(name, "is missing")
    elif not bundle.regular(name):
        report.wrong(name, "is not a regular file")
    elif bundle.sha256(name) != sha256:
        report.wrong(name, f"has sha256 {bundle.sha256(name)}, {RUN} says {sha256}")
    elif size is not None and bundle.files[name].stat().st_size != size:
        report.wrong(name, f"has {bundle.files[name].stat().st_size} bytes, {RUN} says {size}")


def _check_names(bundle: Bundle, listed: list[str], run: Mapping[str, Any], report: Report) -> None:
    for name in sorted(set(bundle.files) - expected_names(listed, bool(run.get("signing")))):
        report.wrong(name, f"is not a file of this run: {RUN} does not list it")
    if len(set(listed)) != len(listed):
        report.wrong(RUN, "lists a file twice")


def _check_sidecars(bundle: Bundle, listed: list[str], report: Report) -> Mapping[str, Any] | None:
    """Every sidecar is what the run would write for its file; returns the predicate that they share."""
    broken = {finding.name for finding in report.findings}
    sound = [name for name in listed if not {name, name + SUFFIX} & broken]
    order = [name for name in (VERDICT, *sound, RUN) if name in sound or name == RUN]
    known = next((found for name in order if (found := bundle.predicate(name)) is not None), None)
    if known is None:
        report.wrong(RUN + SUFFIX, "no sidecar holds a predicate")
        return None
    for name in [*sound, *([RUN] if RUN not in broken else [])]:
        sources = tuple((one, bundle.sha256(one)) for one in drawn_from(name, listed) if bundle.regular(one))
        subject = Subject(name, bundle.sha256(name), (bundle.path / name).stat().st_size, derived_from=sources)
        if bundle.read(name + SUFFIX) != _written(subject, known):
            report.wrong(name + SUFFIX, f"is not what the run wrote: it differs from what {order[0]}{SUFFIX} says")
    missing = [block for block in BLOCKS if block not in known]
    if missing:
        report.wrong(order[0] + SUFFIX, f"has no {', '.join(missing)}")
    for place in unexplained(known):
        report.wrong(order[0] + SUFFIX, f"{place} is null without a reason")
    return known


def _written(subject: Subject, known: Mapping[str, Any]) -> bytes:
    try:
        return to_bytes(statement(subject, known))
    except ValueError as error:
        raise VerificationError(f"the sidecar of {subject.name} cannot be written again: {error}") from error
