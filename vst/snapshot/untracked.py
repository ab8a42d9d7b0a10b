"""Which untracked files come into a snapshot: the ones that the user names, and none silently left out."""

from __future__ import annotations

import os
from pathlib import Path

from vst.errors import ConfigError, VerificationError
from vst.snapshot.repository import listed
from vst.snapshot.snapshot_verify import show


def relative_names(top: Path, paths: list[str]) -> list[bytes]:
    """``--include-untracked`` values (absolute, or relative to the top of the worktree) as paths below the top."""
    names = []
    for path in paths:
        full = os.path.normpath(os.path.join(top, path))
        name = os.path.relpath(full, top)
        if name.split("/")[0] in ("..", ".git"):
            raise ConfigError(f"--include-untracked {path} is not inside the worktree {top}")
        if not os.path.lexists(full):
            raise ConfigError(f"--include-untracked {path} does not exist below {top}")
        names.append(os.fsencode(name))
    return names


def select_untracked(top: Path, untracked: list[bytes], include: list[bytes], tracked: set[bytes]) -> list[bytes]:
    """The files to take in. VerificationError when an untracked file is not named, or a name is a nested repository."""
    selected = {path for path in untracked if any(_covers(name, path) for name in include)}
    repositories = sorted(path for path in selected if path.endswith(b"/"))
    if repositories:
        raise VerificationError(
            f"a nested repository cannot be included, its files belong to its own history: {listed(repositories)}\n"
            "make it a submodule, ignore it, or snapshot it on its own"
        )
    unnamed = sorted(set(untracked) - selected)
    if unnamed:
        raise VerificationError(
            f"{len(unnamed)} untracked path(s) are not in the snapshot: {listed(unnamed)}{_nested_note(unnamed)}\n"
            "expected each to be named with --include-untracked, ignored or removed"
        )
    return sorted(selected | _ignored_but_named(top, include, tracked))


def _nested_note(paths: list[bytes]) -> str:
    nested = [show(path) for path in paths if path.endswith(b"/")]
    return (
        f"\n(a nested repository, which can only be ignored or made a submodule: {', '.join(nested)})" if nested else ""
    )


def _covers(name: bytes, path: bytes) -> bool:
    return name == b"." or path.rstrip(b"/") == name or path.startswith(name + b"/")


def _ignored_but_named(top: Path, include: list[bytes], tracked: set[bytes]) -> set[bytes]:
    """A file named exactly is meant, even when an ignore rule covers it; a directory stands for what git lists."""
    return {name for name in include if name not in tracked and not _is_directory(os.fsencode(top) + b"/" + name)}


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
