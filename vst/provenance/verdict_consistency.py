"""Whether a verdict follows from its own checks, and whether all files tell the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from vst.checkpoint.manifest import Manifest
from vst.errors import VerificationError
from vst.provenance.bundle import Bundle
from vst.provenance.composed import RESOLVED
from vst.provenance.inputs import CHECKPOINTS, DRAFTS
from vst.provenance.predicate import verdict_block
from vst.provenance.redaction import MASK
from vst.provenance.report import Report
from vst.provenance.rundir import RUN, VERDICT
from vst.provenance.sidecar import SUFFIX
from vst.verdict import EXIT_CONFIG, EXIT_INTERRUPTED, EXIT_TERMINATED, Check, LaneVerdict, Outcome, Verdict

STOPPED = (EXIT_INTERRUPTED, EXIT_TERMINATED)


def check_verdict(bundle: Bundle, run: Mapping[str, Any], known: Mapping[str, Any], report: Report) -> None:
    """``verdict.json`` against itself, against ``run.json`` and against the sidecars; inputs against the manifests."""
    verdict = bundle.json(VERDICT)
    if verdict is None:
        report.wrong(VERDICT, "is missing or is not a JSON object")
        return
    try:
        for text in contradictions(verdict):
            report.wrong(VERDICT, text)
        for key in ("verdict", "exit_code", "server"):
            if run.get(key) != verdict[key]:
                report.wrong(RUN, f"says {key} {run.get(key)!r}, {VERDICT} says {verdict[key]!r}")
        if known.get("verdict") != verdict_block(verdict):
            report.wrong(RUN + SUFFIX, f"tells another verdict than {VERDICT}")
        _check_evidence(bundle, verdict, report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        report.wrong(VERDICT, f"is malformed: {type(error).__name__}: {error}")
    _check_inputs(bundle, known, report)
    _check_config(bundle, run, report)


def lanes_of(verdict: Mapping[str, Any]) -> list[LaneVerdict]:
    """The lanes of a stored verdict with their checks as stored; their judgement follows from the checks."""
    return [
        LaneVerdict(lane["lane"], tuple(Check(check["id"], Outcome(check["outcome"])) for check in lane["checks"]))
        for lane in verdict["lanes"]
    ]


def contradictions(verdict: Mapping[str, Any]) -> list[str]:
    """What a verdict says that does not follow from the outcomes of its checks."""
    problems = []
    lanes = lanes_of(verdict)
    for stored, lane in zip(verdict["lanes"], lanes, strict=True):
        cause = lane.cause.value if lane.cause else None
        if (stored["verdict"], stored["cause"]) != (lane.word, cause):
            said = f"{stored['verdict']} ({stored['cause']})"
            problems.append(f"lane {lane.lane} is {said}, its checks give {lane.word} ({cause})")
    whole = Verdict(verdict["lane"], lanes, interrupted=_stopped(verdict))
    cause = whole.cause.value if whole.cause else None
    for key, found in (("verdict", whole.word), ("cause", cause), ("exit_code", whole.exit_code)):
        if verdict[key] != found:
            problems.append(f"{key} is {verdict[key]!r}, its lanes give {found!r}")
    if verdict["interrupted"] is not (verdict["exit_code"] in STOPPED):
        problems.append(f"interrupted is {verdict['interrupted']} with exit code {verdict['exit_code']}")
    return problems


def _stopped(verdict: Mapping[str, Any]) -> int | None:
    """The exit code that does not come from the checks: a signal, or a configuration found wrong on the way."""
    code = verdict["exit_code"]
    if code == EXIT_CONFIG:
        last = verdict["lanes"][-1]["checks"][-1] if verdict["lanes"] else {}
        return EXIT_CONFIG if str(last.get("reason", "")).startswith("ConfigError") else None
    return int(code) if code in STOPPED and verdict["interrupted"] else None


def _check_evidence(bundle: Bundle, verdict: Mapping[str, Any], report: Report) -> None:
    for lane in verdict["lanes"]:
        for check in lane["checks"]:
            if check["evidence"] is not None and check["evidence"] not in bundle.files:
                report.wrong(VERDICT, f"{check['id']} names {check['evidence']} as evidence, which is not there")


def _check_inputs(bundle: Bundle, known: Mapping[str, Any], report: Report) -> None:
    inputs = known.get("inputs")
    for role in (*CHECKPOINTS, *DRAFTS):
        stated = inputs.get(role) if isinstance(inputs, Mapping) else None
        content = bundle.json(f"manifest-{role}.json")
        if not isinstance(stated, Mapping) or content is None:
            continue
        try:
            # A bundle of an earlier version is judged by its own digests.
            manifest = Manifest.from_json(content, earlier=True)
        except VerificationError as error:
            report.wrong(f"manifest-{role}.json", str(error))
            continue
        found = (manifest.layout_digest, manifest.content_digest)
        if found != (stated.get("layout_digest"), stated.get("content_digest")):
            report.wrong(f"manifest-{role}.json", f"has other digests than inputs.{role} of {RUN}{SUFFIX}")


def _check_config(bundle: Bundle, run: Mapping[str, Any], report: Report) -> None:
    """The digest that was asked for is that of the configuration that lies there; masked values are not in it."""
    data = bundle.read(RESOLVED)
    request = run.get("request")
    stated = request.get("config_digest") if isinstance(request, Mapping) else None
    if data and MASK.encode() not in data and stated != "sha256:" + hashlib.sha256(data).hexdigest():
        report.wrong(RUN, f"asks for the configuration {stated}, which {RESOLVED} is not")
