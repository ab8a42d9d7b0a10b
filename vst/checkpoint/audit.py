"""Lane L0: everything that can be known about the checkpoints before a byte leaves the machine.

A bad checkpoint never raises here: each problem becomes the outcome of a check. The checks are ``files.format``,
``files.index``, ``files.config``, ``files.pair``, ``files.trusted``, ``files.finite`` and ``files.storage``, one of
each for all checkpoints together; ``stable_check`` makes ``files.stable`` at the end of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vst.checkpoint import checks
from vst.checkpoint.config_file import try_config
from vst.checkpoint.digests import DigestCache
from vst.checkpoint.findings import not_evaluated
from vst.checkpoint.hashing import Progress
from vst.checkpoint.manifest import Manifest
from vst.checkpoint.pairing import pair_check
from vst.checkpoint.stability import stable_check as stable_check
from vst.checkpoint.storage import Mount, read_mounts
from vst.checkpoint.subject import Subject, digest, inspect
from vst.errors import ConfigError
from vst.verdict import Check, Outcome

MODEL, CHECKPOINT = "model", "checkpoint"
DEPENDENT = ("files.config", "files.pair", "files.trusted", "files.finite", "files.storage")


@dataclass(frozen=True)
class AuditOptions:
    """What the audit looks at, and what the user has declared as acceptable.

    ``finite``: ``auto`` scans when no checkpoint is larger than ``finite_limit_bytes``. ``allow_missing_scales`` are
    fnmatch patterns of tensor names. ``content`` digests all tensors; without it ``files.pair`` cannot pass.
    ``shard_digests`` takes the SHA-256 of every shard in the same pass: evidence names it, comparisons do not need it.
    A shard that is to have a trusted digest is digested whatever the two say.
    """

    finite: Literal["auto", "always", "never"] = "auto"
    finite_limit_bytes: int = 8 << 30
    allow_network_fs: bool = False
    allow_missing_scales: tuple[str, ...] = ()
    allow_tied_mismatch: bool = False
    allow_extra_shards: bool = False
    content: bool = True
    shard_digests: bool = True
    digest_cache: Path | None = None


@dataclass
class AuditResult:
    """The checks of lane L0, and the manifest of each role whose headers and index hold."""

    checks: list[Check] = field(default_factory=list)
    manifests: dict[str, Manifest] = field(default_factory=dict)


def audit(
    pair: Mapping[str, Path],
    options: AuditOptions | None = None,
    trusted: Mapping[str, Path] | None = None,
    *,
    mounts: Sequence[Mount] | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audits the checkpoints of ``pair`` (role ``model`` is A, ``checkpoint`` is B; one role alone is allowed).

    ``trusted`` maps a role to a file of expected digests; ``mounts`` replaces the mount table of the kernel.
    ``progress`` gets the bytes digested since its last call, from one thread at a time. Raises ``ConfigError`` only if
    ``pair`` is empty.
    """
    if not pair:
        raise ConfigError("nothing to audit: set model.path or checkpoint.path")
    chosen = options or AuditOptions()
    expected = dict(trusted or {})
    subjects = [inspect(role, Path(path), chosen.allow_extra_shards) for role, path in pair.items()]
    cache_problems = _digest(subjects, chosen, expected, progress)
    found = [checks.format_check(subjects, cache_problems), checks.index_check(subjects)]
    blocking = next((check.id for check in found if check.outcome is not Outcome.PASS), None)
    if blocking:
        found += [not_evaluated(name, blocking) for name in DEPENDENT if name != "files.pair" or _is_pair(pair)]
    else:
        table = read_mounts() if mounts is None else mounts
        found += _dependent(subjects, chosen, expected, table)
    return AuditResult(found, {subject.role: subject.manifest for subject in subjects if subject.manifest})


def _is_pair(roles: Mapping[str, object]) -> bool:
    return MODEL in roles and CHECKPOINT in roles


def _digest(
    subjects: list[Subject], options: AuditOptions, trusted: dict[str, Path], progress: Progress | None
) -> list[str]:
    """Digests what is asked for, if every checkpoint can be read; returns why digests could not be remembered."""
    if any(subject.manifest is None for subject in subjects):
        return []
    cache = DigestCache(options.digest_cache) if options.digest_cache else None
    for subject in subjects:
        if options.content or subject.role in trusted:
            digest(subject, cache, progress, options.shard_digests or subject.role in trusted)
    return cache.problems if cache else []


def _dependent(
    subjects: list[Subject], options: AuditOptions, trusted: dict[str, Path], mounts: Sequence[Mount]
) -> list[Check]:
    manifests = {subject.role: subject.manifest for subject in subjects if subject.manifest}
    found = [checks.config_check(subjects, options)]
    if _is_pair(manifests):
        a = manifests[MODEL]
        found.append(pair_check(a, manifests[CHECKPOINT], try_config(a.path)))
    return [
        *found,
        checks.trusted_check(manifests, trusted),
        checks.finite_check(manifests, options),
        checks.storage_check(manifests, mounts, options.allow_network_fs),
    ]
