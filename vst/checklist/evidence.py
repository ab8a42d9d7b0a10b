"""What the checklist is filled from: the checks of runs whose bundles were verified before anything was taken."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vst.attempt import RUN_FILE, attempt_directory, attempts_begun
from vst.cluster.sweep import NAME, Sweep
from vst.errors import ConfigError
from vst.provenance.atomic import file_sha256
from vst.provenance.composed import RESOLVED
from vst.provenance.verify import verify
from vst.report.material import Material, read_object
from vst.verdict import Outcome

if TYPE_CHECKING:
    from vst.provenance.report import Report

VERDICT = "verdict.json"
DOUBLE = "its server was the scripted double, which is no evidence about a model"
UNSEALED = "not verified: this list is part of the bundle, and sealed with it; python -m vst.checklist DIR verifies it"


@dataclass(frozen=True)
class Source:
    """One check as one run found it; ``file`` and ``sha256`` are what the finding rests on."""

    run: str
    check: str
    lane: str
    outcome: Outcome
    reason: str
    file: str
    sha256: str


@dataclass(frozen=True)
class RunEvidence:
    """One run: its checks, the facts that decide which rows apply, and whether its bundle holds.

    ``broken`` is the first thing that does not hold, ``incomplete`` why there is no verdict; both empty for a sound
    run. ``facts`` maps the name of a fact to the reason that is shown for it.
    """

    name: str
    path: Path
    model: str
    layout: str
    vllm: str
    sources: tuple[Source, ...]
    facts: Mapping[str, str]
    holds: str
    broken: str = ""
    incomplete: str = ""


def collect(directories: list[Path]) -> list[Path]:
    """The directories of runs in ``directories``: runs, sweeps, and folders of either; ConfigError for one without."""
    found: list[Path] = []
    for directory in directories:
        runs = list(_runs_in(directory))
        if not runs:
            raise ConfigError(
                f"{directory} holds no run: give directories with a {RUN_FILE}, sweeps, or folders of them"
            )
        found += runs
    return list(dict.fromkeys(path.resolve() for path in found))


def _runs_in(directory: Path) -> Iterator[Path]:
    if (directory / RUN_FILE).is_file():
        yield directory
    elif (directory / NAME).is_file():
        for run in Sweep.read(directory).runs:
            base = directory / run.directory
            if attempts_begun(base):
                yield attempt_directory(base, attempts_begun(base))
    elif directory.is_dir():
        yield from (path.parent for path in sorted(directory.glob(f"*/{RUN_FILE}")))


def read_all(paths: Sequence[Path]) -> list[RunEvidence]:
    """The evidence of all runs, each named by its path below the directory that they have in common."""
    common = Path(os.path.commonpath([path.parent for path in paths]))
    return [read_evidence(path, str(path.relative_to(common))) for path in paths]


def read_evidence(path: Path, name: str) -> RunEvidence:
    """Verify the bundle of a run, then take its checks; of one that does not hold nothing is taken."""
    report = verify(path)
    if report.findings:
        return _nothing(path, name, broken=str(report.findings[0]))
    if report.incomplete is not None:
        return _nothing(path, name, incomplete=report.incomplete)
    if is_double(path):
        return _nothing(path, name, incomplete=DOUBLE)
    verdict = read_object(path / VERDICT) or {}
    facts = (read_object(path / f"{VERDICT}.meta.json") or {}).get("predicate") or {}
    digests = {file: file_sha256(path / file) for file in _files(verdict)}
    return _evidence(path, name, verdict, facts, digests, _held(report))


def from_material(material: Material) -> RunEvidence:
    """The evidence of a run that is about to be sealed, for its own checklist."""
    if is_double(material.path):
        return _nothing(material.path, "this run", incomplete=DOUBLE)
    digests = {name: file.sha256 for name, file in material.by_name.items()}
    return _evidence(material.path, "this run", material.verdict, material.facts, digests, "")


def _held(report: Report) -> str:
    return f"{report.files} files and their sidecars hold"


def _nothing(path: Path, name: str, broken: str = "", incomplete: str = "") -> RunEvidence:
    return RunEvidence(name, path, "", "", "", (), {}, "", broken, incomplete)


def _files(verdict: Mapping[str, Any]) -> set[str]:
    named = {str(check["evidence"]) for lane in verdict["lanes"] for check in lane["checks"] if check["evidence"]}
    return {VERDICT, *named}


def _evidence(
    path: Path, name: str, verdict: Mapping[str, Any], facts: Mapping[str, Any], digests: Mapping[str, str], holds: str
) -> RunEvidence:
    inputs = facts.get("inputs") or {}
    model = inputs.get("model") or {}
    publisher = (facts.get("runtime") or {}).get("publisher") or {}
    sources = tuple(
        _source(name, str(lane.get("lane")), check, digests)
        for lane in verdict.get("lanes") or ()
        for check in lane.get("checks") or ()
    )
    return RunEvidence(
        name=name,
        path=path,
        model=str(model.get("declared_name") or ""),
        layout=str(model.get("layout_digest") or ""),
        vllm=str(publisher.get("vllm") or ""),
        sources=sources,
        facts=dict(_applies(path, verdict, facts)),
        holds=holds,
    )


def _source(run: str, lane: str, check: Mapping[str, Any], digests: Mapping[str, str]) -> Source:
    file = str(check.get("evidence") or VERDICT)
    return Source(
        run=run,
        check=str(check.get("id")),
        lane=lane,
        outcome=Outcome(check.get("outcome")),
        reason=str(check.get("reason") or ""),
        file=file,
        sha256=digests.get(file, ""),
    )


def _applies(path: Path, verdict: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Facts that make a row not applicable, each with the evidence for it."""
    checks = {check.get("id"): check for lane in verdict.get("lanes") or () for check in lane.get("checks") or ()}
    config = (checks.get("files.config") or {}).get("observed")
    configs = [one for one in config.values() if isinstance(one, Mapping)] if isinstance(config, Mapping) else []
    sound = (checks.get("files.config") or {}).get("outcome") == Outcome.PASS.value
    if sound and configs and all(one.get("tie_word_embeddings") is False for one in configs):
        yield "untied", "files.config: tie_word_embeddings is false"
    if sound and configs and all(not one.get("quantised_tensors") for one in configs):
        yield "unscaled", "files.config: no quantised tensor"
    if (checks.get("server.alive") or {}).get("outcome") == Outcome.PASS.value and _one_seat(path, verdict):
        yield "alone", "server.data_parallel_size is 1 and there was one server: every other row is about it"
    argvs = [server.get("argv") for server in (facts.get("runtime") or {}).get("servers") or ()]
    if argvs and all(isinstance(argv, list) for argv in argvs) and not any(_drafts(argv) for argv in argvs):
        command = shlex.quote("--speculative-config")
        yield "draftless", f"runtime.servers: no server was started with {command}"


def _drafts(argv: list[Any]) -> bool:
    return any(str(word).startswith(("--speculative", "-sc")) for word in argv)


def _one_seat(path: Path, verdict: Mapping[str, Any]) -> bool:
    """Whether one server without data-parallel ranks answered, so that the other checks speak of all there was."""
    return _server_of(path).get("data_parallel_size") == 1 and "servers" not in (verdict.get("server") or {})


def is_double(path: Path) -> bool:
    """Whether the run was made against the scripted double of a server, which says nothing about any model."""
    return _server_of(path).get("kind") == "scripted"


def _server_of(path: Path) -> Mapping[str, Any]:
    """The group ``server`` of the run's configuration; empty where it cannot be read."""
    import yaml

    try:
        content = yaml.safe_load((path / RESOLVED).read_bytes())
    except (OSError, yaml.YAMLError):
        return {}
    server = content.get("server") if isinstance(content, Mapping) else None
    return server if isinstance(server, Mapping) else {}
