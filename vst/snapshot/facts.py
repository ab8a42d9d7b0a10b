"""The facts of a verified snapshot, for a run that was started with ``snapshot.manifest=...``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vst.errors import ConfigError, VerificationError
from vst.snapshot import snapshot_verify
from vst.snapshot.outside import repository_of, verify_outside, worktree_of
from vst.snapshot.snapshot_verify import Manifest


@dataclass(frozen=True)
class SnapshotFacts:
    """What a sidecar says about the snapshot; ``manifest_digest`` is the SHA-256 of the manifest's bytes."""

    id: str
    commit: str
    tree: str
    ref: str
    manifest_digest: str
    worktree: Path
    repository: Path
    image: str | None


@contextmanager
def as_vst_errors() -> Iterator[None]:
    """Give the errors of the standalone verifier their place in the package's error tree."""
    try:
        yield
    except snapshot_verify.Usage as error:
        raise ConfigError(str(error)) from error
    except snapshot_verify.Refused as error:
        raise VerificationError(str(error)) from error


def read_manifest(path: Path) -> Manifest:
    """Parse a manifest; ConfigError when it cannot be read, VerificationError when it is not one."""
    with as_vst_errors():
        return snapshot_verify.load_manifest(str(path))


def facts_of(manifest: Manifest) -> SnapshotFacts:
    """The facts as the manifest states them, not verified."""
    snapshot, image = manifest.data["snapshot"], manifest.data.get("image")
    return SnapshotFacts(
        id=manifest.data["run_id"],
        commit=snapshot["commit"],
        tree=snapshot["tree"],
        ref=snapshot["ref"],
        manifest_digest=f"sha256:{manifest.digest}",
        worktree=worktree_of(manifest),
        repository=repository_of(manifest),
        image=image["digest"] if image else None,
    )


def load_and_verify(manifest_path: Path, root: Path | None = None) -> SnapshotFacts:
    """The facts, after all that can be checked was.

    With ``root`` these are the files mounted there, and no git is needed; without it ref, commit, tree, patch,
    artifacts and the worktree. VerificationError lists every disagreement.
    """
    with as_vst_errors():
        manifest = snapshot_verify.load_manifest(str(manifest_path))
        if root is None:
            verify_outside(manifest).require(f"snapshot {manifest.data['run_id']}")
        else:
            snapshot_verify.verify_root(manifest, str(root)).require(f"the tree under {root}")
    return facts_of(manifest)
