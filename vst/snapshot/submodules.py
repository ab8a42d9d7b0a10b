"""Submodules of a snapshot: each is one commit, and its files are laid out as plain files of that commit.

A submodule whose own worktree has changes is refused, because the snapshot can only name a commit. One that was never
initialised stays an empty directory in the snapshot, as it is in the original.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vst.errors import VerificationError
from vst.snapshot.git import Git
from vst.snapshot.repository import head_commit, index_entries, listed
from vst.snapshot.snapshot_verify import named_bytes, show


@dataclass(frozen=True)
class Submodule:
    """One submodule by its path below the top of the superproject; ``git_dir`` is None when it is not initialised."""

    path: bytes
    commit: str
    git_dir: Path | None
    nested: tuple[Submodule, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {**named_bytes("path", self.path), "commit": self.commit, "populated": self.git_dir is not None}


def flattened(modules: tuple[Submodule, ...]) -> list[Submodule]:
    """All submodules, a parent before its own."""
    return [item for module in modules for item in (module, *flattened(module.nested))]


def inspect_submodule(git: Git, top: Path, path: bytes, recorded: str) -> Submodule:
    """Read one submodule; VerificationError when it has changes that no commit holds."""
    place = top / os.fsdecode(path)
    if not (place / ".git").exists():
        return Submodule(path, recorded, None)
    inside = Git(place)
    commit = head_commit(inside)
    changes = inside.records("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=all")
    links = [entry for entry in index_entries(inside) if entry.mode == "160000"]
    nested = tuple(
        inspect_submodule(inside, top, path + b"/" + entry.path, entry.oid)
        for entry in links
        if (place / os.fsdecode(entry.path)).is_dir()
    )
    moved = {path + b"/" + entry.path: entry.oid for entry in links}
    changes += [b" M " + module.path for module in nested if module.commit != moved[module.path]]
    if changes:
        raise VerificationError(
            f"submodule {show(path)} has changes that no commit holds: {listed(changes)}\n"
            "commit them in the submodule (the snapshot records its commit), or remove them"
        )
    return Submodule(path, commit, Path(inside.line("rev-parse", "--absolute-git-dir")), nested)


def populate(module: Submodule, worktree: Path, scratch: Path) -> None:
    """Write the files of the submodule's commit into the snapshot worktree, from its local objects only."""
    if module.git_dir is None:
        return
    place = worktree / os.fsdecode(module.path)
    git = Git(place, {"GIT_INDEX_FILE": str(scratch / "submodule-index")}, _options(module.git_dir, place))
    git.run("read-tree", module.commit)
    git.run("checkout-index", "--all", "--force", "--quiet")
    for inner in module.nested:
        populate(inner, worktree, scratch)


def tree_records(module: Submodule) -> list[bytes]:
    """``git ls-tree -r -z`` of the submodule's commit."""
    if module.git_dir is None:
        return []
    git = Git(module.git_dir, options=(f"--git-dir={module.git_dir}",))
    return git.records("ls-tree", "-r", "-z", "--full-tree", module.commit)


def _options(git_dir: Path, place: Path) -> tuple[str, ...]:
    return (f"--git-dir={git_dir}", f"--work-tree={place}", "-c", "core.sparseCheckout=false")
