"""Verification where git and the repository are: ref, commit, tree, patch, artifacts and worktree must still agree."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from vst.errors import VstError
from vst.snapshot import snapshot_verify
from vst.snapshot.git import Git
from vst.snapshot.listing import committed
from vst.snapshot.patch import patched_tree
from vst.snapshot.repository import branch_name
from vst.snapshot.snapshot_verify import Manifest, Report, bytes_named, show


def worktree_of(manifest: Manifest) -> Path:
    """Where prepare laid the snapshot out."""
    return Path(os.fsdecode(bytes_named(manifest.data["snapshot"], "worktree") or b""))


def repository_of(manifest: Manifest) -> Path:
    """The top of the original worktree."""
    return Path(os.fsdecode(bytes_named(manifest.data["repository"], "path") or b""))


def verify_outside(manifest: Manifest) -> Report:
    """Compare manifest, repository and worktree; the report lists every disagreement."""
    git, worktree = Git(repository_of(manifest)), worktree_of(manifest)
    snapshot = manifest.data["snapshot"]
    if not worktree.is_dir():
        advice = f"git -C {git.cwd} worktree prune && git -C {git.cwd} update-ref -d {snapshot['ref']}"
        return Report(0, (f"the worktree {worktree} is missing; to start again: {advice}",))
    files = snapshot_verify.verify_root(manifest, str(worktree))
    problems = _gathered(lambda: _commit_problems(git, manifest) or _content_problems(git, manifest))
    problems += _gathered(lambda: _worktree_problems(git.at(worktree), manifest))
    return Report(files.files, (*problems, *files.problems), files.extra)


def _gathered(check: Callable[[], list[str]]) -> list[str]:
    """The problems of one check; what keeps it from ending is a problem too, and hides none of the others."""
    try:
        return check()
    except VstError as error:
        return [str(error)]


def _commit_problems(git: Git, manifest: Manifest) -> list[str]:
    snapshot = manifest.data["snapshot"]
    ref, commit = snapshot["ref"], snapshot["commit"]
    if not git.succeeds("rev-parse", "--verify", "--quiet", ref):
        return [f"{ref} is missing from {git.cwd}, expected {commit}; restore it: git update-ref {ref} {commit}"]
    expected = {"commit": commit, "tree": snapshot["tree"], "parent": manifest.data["head"]}
    found = {name: git.line("rev-parse", "--verify", ref + suffix) for name, suffix in _SUFFIXES.items()}
    return [
        f"{name} of {ref} is {found[name]}, the manifest says {expected[name]}; somebody moved the ref, prepare again"
        for name in expected
        if found[name] != expected[name]
    ]


_SUFFIXES = {"commit": "^{commit}", "tree": "^{tree}", "parent": "^1"}


def _content_problems(git: Git, manifest: Manifest) -> list[str]:
    """The artifacts say the same as git: the listing names the commit's files, the patch leads to its tree."""
    tree_path, patch_path = manifest.artifact("tree"), manifest.artifact("patch")
    if tree_path is None or patch_path is None or snapshot_verify.artifact_problems(manifest):
        return []  # reported with the files
    snapshot = manifest.data["snapshot"]
    entries = snapshot_verify.read_entries(tree_path)
    listed = {(entry.path, entry.mode, entry.oid) for entry in entries if entry.owner is None}
    wrong = sorted({path for path, _, _ in listed ^ committed(git, snapshot["commit"])})
    problems = [f"{show(path)}: the tree listing and the commit disagree; prepare again" for path in wrong]
    objects = Path(git.line("rev-parse", "--path-format=absolute", "--git-path", "objects"))
    result = patched_tree(git, objects, manifest.data["base"], Path(patch_path).read_bytes())
    if result != snapshot["tree"]:
        problems.append(f"the patch leads from {manifest.data['base']} to tree {result}, expected {snapshot['tree']}")
    return problems


def _worktree_problems(git: Git, manifest: Manifest) -> list[str]:
    commit, problems = manifest.data["snapshot"]["commit"], []
    shared = os.fsencode(git.line("rev-parse", "--path-format=absolute", "--git-common-dir"))
    owner = bytes_named(manifest.data["repository"], "common_dir") or b""
    if os.path.realpath(shared) != os.path.realpath(owner):
        return [f"{git.cwd} belongs to {show(shared)}, expected {show(owner)}; somebody replaced the worktree"]
    head, branch = git.line("rev-parse", "HEAD"), branch_name(git)
    if head != commit or branch is not None:
        problems.append(
            f"HEAD of {git.cwd} is {branch or head}, expected detached {commit}; git checkout --detach {commit}"
        )
    if not git.succeeds("diff-index", "--cached", "--quiet", commit):
        problems.append(f"the index of {git.cwd} holds staged changes; git reset there, or keep the work elsewhere")
    untracked = git.records("ls-files", "--others", "--exclude-standard", "-z")
    added = [path for path in untracked if b"/__pycache__/" not in b"/" + path]
    problems += [f"{show(path)} was added to {git.cwd} and is not ignored; move it away" for path in sorted(added)]
    return problems
