"""``cleanup``: remove the worktree and the ref of one snapshot, after proving that nothing would be lost."""

from __future__ import annotations

from pathlib import Path

from vst.errors import ConfigError, VerificationError
from vst.snapshot.facts import SnapshotFacts, as_vst_errors, facts_of, read_manifest
from vst.snapshot.git import Git
from vst.snapshot.outside import verify_outside
from vst.snapshot.repository import listed
from vst.snapshot.worktree import remove_worktree


def cleanup(manifest_path: Path, confirm: bool) -> SnapshotFacts:
    """Verify, then remove worktree and ref; the result directory stays. Ignored files are changes, bytecode is not."""
    manifest = read_manifest(manifest_path)
    facts = facts_of(manifest)
    with as_vst_errors():
        report = verify_outside(manifest)
        report.require(f"nothing was removed: snapshot {facts.id}")
    kept = [path for path in report.extra if b"/__pycache__/" not in b"/" + path]
    if kept:
        raise VerificationError(
            f"nothing was removed: {facts.worktree} holds {len(kept)} file(s) of no snapshot: {listed(kept)}\n"
            "move them away, then clean up again"
        )
    if not confirm:
        raise ConfigError(
            f"nothing was removed; with --confirm this removes the worktree {facts.worktree} and the ref {facts.ref}"
        )
    git = Git(facts.repository)
    remove_worktree(git, Path(git.line("rev-parse", "--path-format=absolute", "--git-common-dir")), facts.worktree)
    git.run("update-ref", "-d", facts.ref, facts.commit)
    return facts
