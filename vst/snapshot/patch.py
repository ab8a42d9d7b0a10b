"""The binary patch from base to snapshot, and the proof that it leads from the one tree to the other."""

from __future__ import annotations

import tempfile
from pathlib import Path

from vst.snapshot.git import Git

_DIFF = (
    "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
    "--unified=3", "--diff-algorithm=myers", "--submodule=short", "--ignore-submodules=none", "-O/dev/null",
    "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


def binary_patch(git: Git, old: str, new: str) -> bytes:
    """The patch between two trees or commits; independent of the user's diff settings and programs."""
    return git.run(*_DIFF, old, new)


def patched_tree(git: Git, objects: Path, base: str, patch: bytes) -> str:
    """The tree that the patch makes of ``base``; index and objects of the trial are thrown away."""
    with tempfile.TemporaryDirectory(prefix="vst-snapshot-") as folder:
        scratch = git.using(
            GIT_INDEX_FILE=f"{folder}/index",
            GIT_OBJECT_DIRECTORY=folder,
            GIT_ALTERNATE_OBJECT_DIRECTORIES=alternate(objects),
        )
        scratch.run("read-tree", base)
        if patch:
            scratch.run("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        return scratch.line("write-tree")


def alternate(objects: Path) -> str:
    """An object directory as git wants it in a colon-separated variable."""
    path = str(objects)
    if ":" not in path and not path.startswith('"'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
