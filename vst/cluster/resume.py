"""Which runs need not be run again: those that passed with the same configuration on the same checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vst.attempt import RUN_FILE, read_json
from vst.checkpoint.audit import AuditOptions, audit
from vst.cluster.outcome import Ending, read_ending
from vst.cluster.prepare import Prepared
from vst.cluster.refresh import refresh
from vst.cluster.sweep import NAME, Sweep
from vst.errors import ConfigError
from vst.provenance.sidecar import SUFFIX


def earlier_sweep(path: Path, resume: bool) -> Sweep | None:
    """The sweep that a directory holds already; ConfigError when it is one and was not asked to be continued."""
    if not (path / NAME).exists():
        return None
    if not resume:
        raise ConfigError(
            f"{path} already holds a sweep: continue it with launch.resume=true, or give another hydra.sweep.dir"
        )
    earlier = Sweep.read(path)
    if earlier.watched_elsewhere() and earlier.watcher is not None:
        raise ConfigError(f"{path} is still watched by process {earlier.watcher['pid']} on {earlier.watcher['host']}")
    refresh(earlier)
    if jobs := [run.job for run in earlier.unfinished() if run.job and earlier.launcher == "slurm"]:
        raise ConfigError(f"{path} still has jobs under way ({' '.join(jobs)}): wait for them or cancel them")
    return earlier


def skip_passed(prepared: Sequence[Prepared], earlier: Sweep | None) -> list[Prepared]:
    """Mark the runs that passed before as skipped; returns the others."""
    passed = _passed(earlier) if earlier else {}
    inputs = Inputs()
    left = []
    for one in prepared:
        ending = passed.get(one.run.config_digest)
        if ending is not None and inputs.unchanged(Path(str(ending.evidence)), one.conf.paths.cache):
            one.run.state, one.run.ending = "skipped", ending
        else:
            left.append(one)
    return left


def _passed(earlier: Sweep) -> dict[str, Ending]:
    """The runs that are PASS on disk by the configuration digest that they wrote themselves."""
    found = {}
    for run in earlier.runs:
        # A run that was skipped then has its evidence in another run's directory.
        evidence = run.ending.evidence if run.ending and run.state == "skipped" else None
        ending = run.ending if evidence else read_ending(earlier.base(run))
        if ending is None or not ending.passed or ending.evidence is None:
            continue
        content = read_json(Path(ending.evidence) / RUN_FILE) or {}
        if content.get("verdict") == "PASS" and content.get("state") == "complete":
            found[str((content.get("request") or {}).get("config_digest"))] = ending
    return found


class Inputs:
    """Digests of checkpoints as they are now, each computed once; the digest cache spares reading what is known."""

    def __init__(self) -> None:
        self._digests: dict[str, tuple[str | None, dict[str, str]]] = {}

    def unchanged(self, evidence: Path, cache: str) -> bool:
        """Whether the checkpoints that a run worked on still are what its sidecar says; False when nothing is said."""
        said = recorded_inputs(evidence)
        return bool(said) and all(self._now(str(one["path"]), cache) == _digests(one) for one in said.values())

    def _now(self, path: str, cache: str) -> tuple[str | None, dict[str, str]]:
        if path not in self._digests:
            options = AuditOptions(
                finite="never", shard_digests=False, digest_cache=Path(cache).expanduser().absolute() / "digests"
            )
            manifest = audit({"model": Path(path)}, options).manifests.get("model")
            self._digests[path] = (manifest.content_digest, dict(manifest.files)) if manifest else (None, {})
        return self._digests[path]


def recorded_inputs(evidence: Path) -> dict[str, Mapping[str, Any]]:
    """The checkpoints in the sidecar of a run, by role."""
    statement = read_json(evidence / f"{RUN_FILE}{SUFFIX}") or {}
    inputs = (statement.get("predicate") or {}).get("inputs") or {}
    return {role: one for role, one in inputs.items() if role in ("model", "checkpoint") and isinstance(one, dict)}


def _digests(recorded: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    digest = recorded.get("content_digest")
    # A digest that was not recorded equals nothing.
    return (str(digest) if digest else "not recorded", dict(recorded.get("files") or {}))
