"""Turn the current state of a worktree into a tree object without touching its index, its files or its object store.

The index is copied with its time stamp (git compares file times with it to notice a change within the same tick)
and all work is done on the copy. New objects go to a quarantine directory; they reach the repository only when
everything else has succeeded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from vst.errors import VerificationError
from vst.snapshot.git import Git
from vst.snapshot.patch import alternate
from vst.snapshot.repository import IndexEntry, Repository, head_commit, index_entries, listed, refuse_unmerged
from vst.snapshot.submodules import Submodule, inspect_submodule
from vst.snapshot.untracked import select_untracked

GITLINK = "160000"


@dataclass(frozen=True)
class Capture:
    """The captured state: its tree, the untracked files taken in, the submodules, and what it was read from."""

    git: Git
    head: str
    tree: str
    included: tuple[bytes, ...]
    submodules: tuple[Submodule, ...]
    index_digest: str
    untracked: tuple[bytes, ...]


def quarantined(repo: Repository, scratch: Path) -> Git:
    """Git that writes objects below ``scratch`` and reads the repository's own beside them."""
    objects = scratch / "objects"
    objects.mkdir()
    return repo.git.using(GIT_OBJECT_DIRECTORY=str(objects), GIT_ALTERNATE_OBJECT_DIRECTORIES=alternate(repo.objects))


def capture(repo: Repository, git: Git, scratch: Path, include: list[bytes]) -> Capture:
    """Build the tree of the current state; ``git`` is a quarantined one, ``include`` names untracked paths."""
    head = head_commit(git)
    digest = index_digest(repo)
    staged = git.using(GIT_INDEX_FILE=str(scratch / "index"))
    if repo.index.exists():
        shutil.copy2(repo.index, scratch / "index")
    entries = index_entries(staged)
    refuse_unmerged(entries, repo)
    untracked = untracked_paths(staged)
    included = select_untracked(repo.top, untracked, include, {entry.path for entry in entries})
    links = [entry for entry in entries if entry.mode == GITLINK and _in_worktree(repo, entry).is_dir()]
    submodules = [inspect_submodule(repo.git, repo.top, entry.path, entry.oid) for entry in links]
    _stage_changes(staged, repo, entries, included)
    _stage_links(staged, links, submodules)
    tree = staged.line("write-tree")
    return Capture(staged, head, tree, tuple(included), tuple(submodules), digest, tuple(untracked))


def _in_worktree(repo: Repository, entry: IndexEntry) -> Path:
    return repo.top / os.fsdecode(entry.path)


def _stage_changes(git: Git, repo: Repository, entries: list[IndexEntry], included: list[bytes]) -> None:
    hidden = [entry for entry in entries if entry.hidden and os.path.lexists(_in_worktree(repo, entry))]
    if hidden:
        names = b"".join(entry.path + b"\0" for entry in hidden)
        git.run("update-index", "--no-skip-worktree", "-z", "--stdin", stdin=names)
        git.run("update-index", "--no-assume-unchanged", "-z", "--stdin", stdin=names)
    changed = changed_paths(git) + _replaced_links(repo, entries)
    deleted = [path for status, path in changed if status == "D"]
    kept = [path for status, path in changed if status != "D"] + included
    if deleted:
        git.run("update-index", "--force-remove", "-z", "--stdin", stdin=b"".join(path + b"\0" for path in deleted))
    if kept:
        git.run("update-index", "--add", "--remove", "-z", "--stdin", stdin=b"".join(path + b"\0" for path in kept))


def _replaced_links(repo: Repository, entries: list[IndexEntry]) -> list[tuple[str, bytes]]:
    """Submodules whose directory was deleted, or replaced by a file (those of a sparse checkout were never there)."""
    links = [entry for entry in entries if entry.mode == GITLINK and entry.flag.upper() != "S"]
    gone = [entry for entry in links if not _in_worktree(repo, entry).is_dir()]
    return [("T" if os.path.lexists(_in_worktree(repo, entry)) else "D", entry.path) for entry in gone]


def _stage_links(git: Git, links: list[IndexEntry], submodules: list[Submodule]) -> None:
    lines = [
        f"{GITLINK} {module.commit} 0\t".encode() + entry.path + b"\0"
        for entry, module in zip(links, submodules, strict=True)
        if module.commit != entry.oid
    ]
    if lines:
        git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))


def changed_paths(git: Git) -> list[tuple[str, bytes]]:
    """Status letter and path of every tracked file that differs from the index in use; submodules are left out."""
    fields = git.records("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all")
    return [(head.decode("ascii")[-1], path) for head, path in zip(fields[::2], fields[1::2], strict=True)]


def untracked_paths(git: Git) -> list[bytes]:
    """Files that are neither tracked nor ignored; a nested repository is one name that ends in a slash."""
    return sorted(git.records("ls-files", "--others", "--exclude-standard", "-z"))


def index_digest(repo: Repository) -> str:
    """SHA-256 of the user's index file, empty when there is none."""
    return hashlib.sha256(repo.index.read_bytes()).hexdigest() if repo.index.exists() else ""


def refuse_if_changed(repo: Repository, taken: Capture) -> None:
    """VerificationError when the worktree, the index or HEAD is no longer what was captured."""
    moved = []
    if head_commit(repo.git) != taken.head:
        moved.append("HEAD moved")
    if index_digest(repo) != taken.index_digest:
        moved.append("the index was written")
    changed = [path for _, path in changed_paths(taken.git)]
    if changed:
        moved.append(f"files were edited: {listed(changed)}")
    appeared = sorted(set(untracked_paths(taken.git)) ^ (set(taken.untracked) - set(taken.included)))
    if appeared:
        moved.append(f"untracked files came or went: {listed(appeared)}")
    if moved:
        raise VerificationError(
            f"{repo.top} changed while it was captured: {'; '.join(moved)}\nlet it rest and prepare again"
        )


def adopt_objects(repo: Repository, git: Git, commit: str, head: str) -> None:
    """Move the new objects of the snapshot from quarantine into the repository, through git's own pack stream."""
    pack = git.run("pack-objects", "--revs", "--stdout", "--window=0", "-q", stdin=f"{commit}\n^{head}\n".encode())
    repo.git.run("unpack-objects", "-q", stdin=pack)
