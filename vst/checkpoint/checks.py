"""The checks of lane L0 over all checkpoints of a run: what was read is judged, each check for all roles at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from vst.checkpoint.config_file import check_architectures, check_tied, read_config, tied_flag
from vst.checkpoint.findings import Findings, judge, not_applicable, not_evaluated
from vst.checkpoint.finite import not_finite
from vst.checkpoint.manifest import Manifest
from vst.checkpoint.scales import check_scales
from vst.checkpoint.storage import Mount, shards_by_mount
from vst.checkpoint.subject import Subject
from vst.checkpoint.trusted import compare_trusted, read_trusted
from vst.errors import VerificationError
from vst.verdict import Check


class Options(Protocol):
    """The part of ``AuditOptions`` that the checks ask for."""

    @property
    def finite(self) -> Literal["auto", "always", "never"]: ...
    @property
    def finite_limit_bytes(self) -> int: ...
    @property
    def allow_missing_scales(self) -> tuple[str, ...]: ...
    @property
    def allow_tied_mismatch(self) -> bool: ...


def format_check(subjects: Sequence[Subject], cache_problems: Sequence[str] = ()) -> Check:
    """``files.format``: every shard that could be found is a complete safetensors file."""
    found = Findings(warnings=list(cache_problems))
    for subject in subjects:
        headers = subject.survey.headers
        found.observed[subject.role] = {"shards": len(headers), "tensors": subject.survey.tensor_count}
        found.problems += subject.format_problems
    if not found.problems and not all(subject.survey.headers for subject in subjects):
        return not_evaluated("files.format", "files.index")
    return judge("files.format", found, "every shard is a complete safetensors file")


def index_check(subjects: Sequence[Subject]) -> Check:
    """``files.index``: index, shards and headers name the same tensors in the same places, all inside the directory."""
    found = Findings()
    for subject in subjects:
        index = subject.survey.index
        found.observed[subject.role] = {
            "index": index is not None,
            "shards": len(index.shard_names) if index else len(subject.survey.headers),
            "tensors": len(index.weight_map) if index else subject.survey.tensor_count,
            "total_size": index.total_size if index else None,
        }
        found.problems += subject.survey.index_problems
        found.warnings += subject.survey.warnings
    if not found.problems and any(subject.survey.format_problems for subject in subjects):
        return not_evaluated("files.index", "files.format")
    return judge("files.index", found, "index, shards and headers agree and stay inside the directory")


def config_check(subjects: Sequence[Subject], options: Options) -> Check:
    """``files.config``: config.json is usable, the tied flag fits the head, quantised tensors have their scales."""
    found = Findings()
    for subject in subjects:
        if subject.manifest is None:
            continue
        try:
            found.observed[subject.role] = _one_config(subject.where, subject.manifest, options, found)
        except VerificationError as error:
            found.problems.append(str(error))
    return judge("files.config", found, "the config parses and agrees with the tensors")


def _one_config(where: str, manifest: Manifest, options: Options, found: Findings) -> dict[str, Any]:
    config = read_config(manifest.path)
    check_architectures(where, config, found)
    check_tied(where, manifest, config, options.allow_tied_mismatch, found)
    quantised = check_scales(where, manifest, config, options.allow_missing_scales, found)
    return {
        "architectures": config.get("architectures"),
        "model_type": config.get("model_type"),
        "tie_word_embeddings": tied_flag(config),
        "quantised_tensors": quantised,
    }


def trusted_check(manifests: Mapping[str, Manifest], trusted: Mapping[str, Path]) -> Check:
    """``files.trusted``: the digests of the shards are those of the manifests that the user gave, if any."""
    if not trusted:
        return not_applicable("files.trusted", "no trusted manifest was given")
    found = Findings()
    for role, path in trusted.items():
        if role not in manifests:
            found.problems.append(f"{path}: given for {role!r}, which is not audited")
            continue
        try:
            expected = read_trusted(path)
        except VerificationError as error:
            found.problems.append(str(error))
            continue
        found.problems += compare_trusted(manifests[role], expected)
        found.observed[role] = {"trusted": str(path), "shards": len(manifests[role].shards)}
    found.warnings += [f"no trusted manifest was given for {role}" for role in manifests if role not in trusted]
    return judge("files.trusted", found, "every shard has its trusted digest")


def finite_check(manifests: Mapping[str, Manifest], options: Options) -> Check:
    """``files.finite``: no NaN and no infinity; the deep scan is skipped, with a reason, where the options say so."""
    if options.finite == "never":
        return not_applicable("files.finite", "the deep scan is switched off; turn it on with finite=always")
    largest = max(manifest.total_bytes for manifest in manifests.values())
    if options.finite == "auto" and largest > options.finite_limit_bytes:
        limit = options.finite_limit_bytes
        return not_applicable(
            "files.finite", f"{largest} bytes, more than {limit} are not scanned unasked; turn it on with finite=always"
        )
    found = Findings()
    for role, manifest in manifests.items():
        try:
            problems = not_finite(manifest)
        except VerificationError as error:
            problems = [str(error)]
        found.problems += [f"{role} {manifest.path}: {problem}" for problem in problems]
        found.observed[role] = {"bytes": manifest.total_bytes, "tensors_not_finite": len(problems)}
    return judge("files.finite", found, "no NaN and no infinity")


def storage_check(manifests: Mapping[str, Manifest], mounts: Sequence[Mount], allow_network_fs: bool) -> Check:
    """``files.storage``: the data of every shard, links resolved, is on a local file system."""
    found = Findings()
    for role, manifest in manifests.items():
        by_mount = shards_by_mount(manifest, mounts)
        for mount, shards in by_mount.items():
            if mount is None or mount.is_network:
                found.complain(_not_local(role, manifest, mount, shards), allow_network_fs)
        found.observed[role] = sorted({mount.fstype if mount else "unknown" for mount in by_mount})
    return judge("files.storage", found, "local file systems only")


def _not_local(role: str, manifest: Manifest, mount: Mount | None, shards: list[str]) -> str:
    what = f"{role} {manifest.path}: {len(shards)} shards ({shards[0]!r} first)"
    if mount is None:
        return f"{what} are on an unknown file system, the kernel shows no mount table"
    place = f"on network file system {mount.fstype} at {mount.point}"
    return f"{what} are {place}; copy them to a local disk, or allow it with allow_network_fs"
