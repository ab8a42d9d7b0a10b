"""Lane L0: the audit of the files, run on the session's checkpoints."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from vst.checkpoint.audit import AuditOptions, audit
from vst.checkpoint.manifest import Manifest
from vst.checkpoint.stability import FileIdentity, identities, stable_check
from vst.checkpoint.survey import survey
from vst.checkpoint.zoo.catalogue import PREFIX
from vst.config import derives, needs_checkpoint
from vst.errors import ConfigError
from vst.lanes.session import Session
from vst.lanes.transaction import write_manifest
from vst.verdict import Check, LaneVerdict


def resolve_paths(session: Session, model: bool = True) -> dict[str, Path]:
    """The checkpoint directories of this run by role; the embedded pair is generated into the cache when it is asked
    for.
    """
    conf = session.conf
    model = model and conf.lane.name != "publish"
    if conf.model.generate and (
        (model and not conf.model.path) or (not conf.checkpoint.path and needs_checkpoint(conf.lane))
    ):
        _generate(session, model)
    if model and not conf.model.path and derives(conf):
        _derive(session)
    roles = {}
    if model and (conf.model.path or not derives(conf)):
        roles["model"] = _directory("model.path", conf.model.path)
    if needs_checkpoint(conf.lane):
        roles["checkpoint"] = _directory("checkpoint.path", conf.checkpoint.path)
    return roles


def _directory(key: str, value: str) -> Path:
    """The directory that a key names; ConfigError where there is none, which says nothing about a checkpoint."""
    path = Path(value).expanduser().absolute()
    try:
        os.listdir(path)
    except OSError as error:
        raise ConfigError(f"{key}={value}: {path} is not a readable directory: {error.strerror}") from error
    return path


def _generate(session: Session, model: bool) -> None:
    conf = session.conf
    if bool(conf.model.path) != bool(conf.checkpoint.path) and model:
        given, other = ("model.path", "checkpoint.path") if conf.model.path else ("checkpoint.path", "model.path")
        raise ConfigError(
            f"{given} is set and {other} is not: set both, or neither for the embedded pair (or use model=local)"
        )
    session.progress.say("making the embedded pair of checkpoints")
    a, b = _pair(str(conf.model.generate), Path(conf.paths.cache).expanduser().absolute())
    for owner, name, path in ((conf.model, "model.path", a), (conf.checkpoint, "checkpoint.path", b)):
        if not owner.path:
            owner.path = str(path)
            session.run.defaults.append(
                {"key": name, "value": str(path), "from": f"model.generate={conf.model.generate}"}
            )


def _derive(session: Session) -> None:
    """Make A from B. A B that cannot be read is audited alone, and its problems are the verdict."""
    from vst.checkpoint.derived import derive

    conf = session.conf
    checkpoint = Path(conf.checkpoint.path).expanduser().absolute()
    if survey(checkpoint, conf.checkpoint.allow_extra_shards).problems:
        return
    session.progress.say("making checkpoint A from B: model.path is not set")
    path = derive(checkpoint, Path(conf.paths.cache).expanduser().absolute() / "derived")
    conf.model.path = str(path)
    session.run.defaults.append({"key": "model.path", "value": str(path), "from": "model.derive=true: made from B"})


def _pair(generate: str, cache: Path) -> tuple[Path, Path]:
    """The pair that ``model.generate`` names, made in the cache unless it is there."""
    if generate == "tiny":
        from vst.checkpoint.tiny import make_tiny_pair

        return make_tiny_pair(cache / "tiny")
    from vst.checkpoint.zoo.make import make_zoo_pair

    return make_zoo_pair(cache / "zoo", generate.removeprefix(PREFIX))


def run_files(session: Session, model: bool = True) -> tuple[LaneVerdict, dict[str, dict[str, FileIdentity]]]:
    """Audit the files; returns the verdict so far and the files' identities for ``files.stable`` at the end."""
    roles = resolve_paths(session, model)
    before = {role: identities(path) for role, path in roles.items()}
    result = audit(roles, _options(session), _trusted(session, set(roles)))
    drafts = resolve_drafts(session)
    checks = [*result.checks, *_audit_drafts(session, drafts, result.manifests)] if drafts else result.checks
    before |= {role: identities(path) for role, path in drafts.items()}
    session.audited.update(before)
    session.manifests.update(result.manifests)
    for role, manifest in result.manifests.items():
        write_manifest(session, role)
        session.run.inputs[role] = describe(session, role, manifest)
    return LaneVerdict("L0", tuple(checks)), before


def resolve_drafts(session: Session) -> dict[str, Path]:
    """The drafts of this run by role, for a server that has one."""
    conf = session.conf
    given = {"draft-model": conf.model.draft_path if conf.lane.name != "publish" else None}
    if needs_checkpoint(conf.lane):
        given["draft-checkpoint"] = conf.checkpoint.draft_path
    return {role: Path(path).expanduser().absolute() for role, path in given.items() if path}


def _audit_drafts(session: Session, drafts: dict[str, Path], manifests: dict[str, Manifest]) -> list[Check]:
    """The same audit of the drafts, its checks as ``draft.files.…``; a draft that stays the same is audited once."""
    result = audit(_as_pair(drafts), _options(session))
    for role in drafts:
        found = result.manifests.get(role.removeprefix("draft-")) or result.manifests.get("model")
        if found is not None:
            manifests[role] = found
    return [replace(check, id=f"draft.{check.id}") for check in result.checks]


def _as_pair(drafts: dict[str, Path]) -> dict[str, Path]:
    if len(set(drafts.values())) == 1:
        return {"model": next(iter(drafts.values()))}
    return {role.removeprefix("draft-"): path for role, path in drafts.items()}


def still_stable(before: dict[str, dict[str, FileIdentity]], session: Session) -> Check:
    """``files.stable`` over all checkpoints of the run."""
    paths = {role: manifest.path for role, manifest in session.manifests.items()}
    old = {f"{role}/{name}": one for role in paths for name, one in before[role].items()}
    new = {f"{role}/{name}": one for role, path in paths.items() for name, one in identities(path).items()}
    return stable_check(old, new)


def _options(session: Session) -> AuditOptions:
    conf = session.conf.checkpoint
    cache = Path(session.conf.paths.cache).expanduser().absolute() / "digests"
    return AuditOptions(
        finite=cast(Any, conf.finite),
        finite_limit_bytes=conf.finite_limit_bytes,
        allow_network_fs=conf.allow_network_fs,
        allow_missing_scales=tuple(conf.allow_missing_scales),
        allow_tied_mismatch=conf.allow_tied_mismatch,
        allow_extra_shards=conf.allow_extra_shards,
        digest_cache=cache if conf.digest_cache else None,
    )


def _trusted(session: Session, roles: set[str]) -> dict[str, Path]:
    given = {"model": session.conf.model.trusted, "checkpoint": session.conf.checkpoint.trusted}
    return {role: Path(path).expanduser().absolute() for role, path in given.items() if path and role in roles}


def describe(session: Session, role: str, manifest: Manifest) -> dict[str, Any]:
    """A checkpoint as an input of the run: where it lies, what it claims to be, and its digests."""
    conf = session.conf.model if role.endswith("model") else session.conf.checkpoint
    draft = role.startswith("draft-")
    return {
        "path": str(manifest.path),
        "declared_name": None if draft else conf.name,
        "declared_revision": None if draft else conf.revision,
        "layout_digest": manifest.layout_digest,
        "content_digest": manifest.content_digest,
        "bytes": manifest.total_bytes,
        "shards": [{"name": shard.name, "bytes": shard.nbytes, "sha256": shard.digest} for shard in manifest.shards],
        "files": dict(manifest.files),
    }
