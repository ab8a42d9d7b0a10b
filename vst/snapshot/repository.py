"""What one git worktree is at this moment: where its parts are, what it is in the middle of, what its index holds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vst.errors import ConfigError, VerificationError
from vst.snapshot.git import Git, GitError
from vst.snapshot.snapshot_verify import show

_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}


@dataclass(frozen=True)
class Repository:
    """A worktree (``top``) with its own git directory, the shared one, its index file and its object store."""

    git: Git
    top: Path
    git_dir: Path
    common_dir: Path
    index: Path
    objects: Path
    object_format: str


@dataclass(frozen=True)
class IndexEntry:
    """One line of the index; ``flag`` is git's letter (S: skip-worktree, lower case: assume-unchanged)."""

    flag: str
    mode: str
    oid: str
    stage: int
    path: bytes

    @property
    def hidden(self) -> bool:
        """True when git was told not to look at the file in the worktree."""
        return self.flag == "S" or self.flag.islower()


def open_repository(path: Path) -> Repository:
    """The worktree that holds ``path``; ConfigError when there is none or it has no files (a bare repository)."""
    if not path.is_dir():
        raise ConfigError(f"--repo {path} is not a directory")
    git = Git(path.absolute())
    try:
        top = Path(git.line("rev-parse", "--show-toplevel"))
    except GitError as error:
        raise ConfigError(f"--repo {path} is not inside a git worktree that git accepts: {error}") from error
    inside = git.at(top)

    def place(*args: str) -> Path:
        return Path(inside.line("rev-parse", "--path-format=absolute", *args))

    return Repository(
        inside,
        top,
        place("--absolute-git-dir"),
        place("--git-common-dir"),
        place("--git-path", "index"),
        place("--git-path", "objects"),
        inside.line("rev-parse", "--show-object-format"),
    )


def head_commit(git: Git) -> str:
    """The commit of HEAD; VerificationError on a branch without commits."""
    if not git.succeeds("rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        raise VerificationError(f"{git.cwd} has no commit yet; a snapshot needs HEAD as its parent: commit once")
    return git.line("rev-parse", "HEAD^{commit}")


def branch_name(git: Git) -> str | None:
    """The full name of the checked-out branch, None when HEAD is detached."""
    if not git.succeeds("symbolic-ref", "--quiet", "HEAD"):
        return None
    return git.line("symbolic-ref", "HEAD")


def operation(repo: Repository) -> dict[str, object] | None:
    """The merge, rebase, cherry-pick, revert or bisect that is under way, with the commits it names."""
    for name, kind in _OPERATIONS.items():
        place = repo.git_dir / name
        if place.exists():
            return {"name": kind, "commits": place.read_text().split() if name.endswith("_HEAD") else []}
    return None


def index_entries(git: Git) -> list[IndexEntry]:
    """The index in git's order."""
    entries = []
    for record in git.records("ls-files", "-v", "--stage", "-z"):
        facts, _, path = record.partition(b"\t")
        flag, mode, oid, stage = facts.decode("ascii").split(" ")
        entries.append(IndexEntry(flag, mode, oid, int(stage), path))
    return entries


def refuse_unmerged(entries: list[IndexEntry], repo: Repository) -> None:
    """VerificationError when the index holds conflicts."""
    unmerged = sorted({entry.path for entry in entries if entry.stage})
    if unmerged:
        under_way = operation(repo)
        name = under_way["name"] if under_way else "merge"
        raise VerificationError(
            f"{len(unmerged)} path(s) are unmerged in the middle of a {name}: {listed(unmerged)}\n"
            f"expected every conflict resolved: `git add` the resolved files, or `git {name} --abort`"
        )


def listed(paths: list[bytes], limit: int = 50) -> str:
    """Paths for a message, one a line, the first ``limit`` of them."""
    lines = [f"\n  {show(path)}" for path in paths[:limit]]
    rest = len(paths) - limit
    return "".join(lines) + (f"\n  ... and {rest} more" if rest > 0 else "")


def is_within(path: Path, folder: Path) -> bool:
    """True when ``path`` is ``folder`` or lies below it, links resolved as far as they exist."""
    return os.path.realpath(path) == os.path.realpath(folder) or os.path.realpath(path).startswith(
        os.path.realpath(folder).rstrip("/") + "/"
    )
