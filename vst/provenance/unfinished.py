"""A run that did not come to its end: what is there must be what its sidecars say, and it is no more than that."""

from __future__ import annotations

from vst.provenance.atomic import file_sha256
from vst.provenance.bundle import Bundle
from vst.provenance.encoding import to_bytes
from vst.provenance.eventlog import broken_line
from vst.provenance.predicate import IN_PROGRESS
from vst.provenance.report import Report
from vst.provenance.rundir import EVENTS, RUN
from vst.provenance.sidecar import SUFFIX, Subject, statement


def check_unfinished(bundle: Bundle, report: Report) -> None:
    """Hash what has a sidecar, and name what has none: logs get theirs at the end of a run only."""
    for name in bundle.sidecars:
        subject = bundle.subject(name)
        known = bundle.predicate(name)
        if subject is None or known is None or subject.name != name:
            report.wrong(name + SUFFIX, f"is not a statement about {name}")
        elif bundle.read(name + SUFFIX) != to_bytes(statement(subject, known)):
            report.wrong(name + SUFFIX, "its seal does not hold: it was edited")
        elif name not in bundle.files:
            report.notes.append(f"{name} was announced and is not there")
        elif not bundle.regular(name):
            report.wrong(name, "is not a regular file")
        else:
            _check(bundle, name, subject, report)
    named = {*bundle.sidecars, *(name + SUFFIX for name in bundle.sidecars)}
    for name in sorted(set(bundle.files) - named):
        report.notes.append(f"{name} has no sidecar yet")


def _check(bundle: Bundle, name: str, subject: Subject, report: Report) -> None:
    report.files += 1
    if name == EVENTS and (line := broken_line(bundle.read(name))) is not None:
        report.wrong(name, f"the seal of line {line} does not hold: it was edited or cut")
        return
    found = file_sha256(bundle.path / name, subject.bytes if subject.grows else None)
    if found in (subject.sha256, subject.replaces) or (name == RUN and _final(bundle)):
        return
    what = f"its first {subject.bytes} bytes have" if subject.grows else "has"
    report.wrong(name, f"{what} sha256 {found}, {name}{SUFFIX} says {subject.sha256}")


def _final(bundle: Bundle) -> bool:
    """Whether the run was killed in its very last step, between the final sidecar of ``run.json`` and that file."""
    verdict = (bundle.predicate(RUN) or {}).get("verdict")
    return isinstance(verdict, dict) and verdict.get("verdict") != IN_PROGRESS
