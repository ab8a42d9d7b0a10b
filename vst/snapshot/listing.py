"""The two listings of a snapshot: every tracked file of its tree, and every file that differs from the base.

Each is JSON lines of ``snapshot_verify.Entry``. SHA-256 is taken from the files of the clean worktree, because
those are the bytes that a container sees (line endings and filters applied); ``oid`` is git's name of what the
commit holds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from vst.errors import VerificationError
from vst.snapshot.git import Git
from vst.snapshot.snapshot_verify import Entry, file_digest, show
from vst.snapshot.submodules import Submodule, flattened, tree_records

_KINDS = {"100644": "file", "100755": "file", "120000": "symlink", "160000": "submodule"}
_NULL_MODE = "000000"
_LFS_HEADER = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_POINTER_BYTES = 1024


def tree_entries(git: Git, commit: str, worktree: Path, submodules: tuple[Submodule, ...]) -> list[Entry]:
    """Everything tracked under the snapshot worktree, sorted by path bytes."""
    found = [_tree_entry(None, b"", record) for record in git.records("ls-tree", "-r", "-z", "--full-tree", commit)]
    for module in flattened(submodules):
        found += [_tree_entry(module.path, module.path + b"/", record) for record in tree_records(module)]
    root = os.fsencode(worktree)
    return sorted((_hashed(entry, root) for entry in found), key=lambda entry: entry.path)


def committed(git: Git, commit: str) -> set[tuple[bytes, str | None, str | None]]:
    """Path, mode and object name of everything in a commit's tree, for comparison with a listing."""
    records = git.records("ls-tree", "-r", "-z", "--full-tree", commit)
    return {(entry.path, entry.mode, entry.oid) for entry in (_tree_entry(None, b"", record) for record in records)}


def _tree_entry(owner: bytes | None, prefix: bytes, record: bytes) -> Entry:
    facts, _, path = record.partition(b"\t")
    mode, _, oid = facts.decode("ascii").split(" ")
    return Entry(prefix + path, _KINDS[mode], mode, oid=oid, owner=owner)


def _hashed(entry: Entry, root: bytes) -> Entry:
    path = root + b"/" + entry.path
    if entry.kind == "submodule":
        return entry
    try:
        if entry.kind == "symlink":
            target = os.readlink(path)
            return replace(entry, sha256=hashlib.sha256(target).hexdigest(), target=target)
        digest, size = file_digest(path)
    except OSError as error:
        raise VerificationError(
            f"{show(entry.path)} of the commit could not be laid out in {os.fsdecode(root)}: {error.strerror}; "
            "use a file system that can hold every name and symlink of the repository as --worktree-root"
        ) from error
    return replace(entry, sha256=digest, size=size)


def change_entries(git: Git, base: str, commit: str, tree: Iterable[Entry]) -> list[Entry]:
    """One entry per path that differs between base and snapshot; a rename is a deletion and a new file."""
    fields = git.records("diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", base, commit)
    now = {entry.path: entry for entry in tree}
    changes = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, mode, old_oid = facts.decode("ascii").lstrip(":").split(" ")[:3]
        changes.append(Entry(path, "deleted", old_mode, oid=old_oid) if mode == _NULL_MODE else now[path])
    return changes


def to_lines(entries: Iterable[Entry]) -> bytes:
    """JSON lines, one per entry."""
    return b"".join(json.dumps(entry.to_json(), sort_keys=True).encode("ascii") + b"\n" for entry in entries)


def lfs_pointers(entries: list[Entry], worktree: Path) -> list[bytes]:
    """Files that are Git LFS pointers in the worktree, not the objects that they stand for.

    Only a tree whose attributes name the lfs filter is looked through.
    """
    files = [entry for entry in entries if entry.kind == "file"]
    attributes = [entry for entry in files if entry.path.rpartition(b"/")[2] == b".gitattributes"]
    if not any(b"filter=lfs" in _beginning(worktree, entry.path, -1) for entry in attributes):
        return []
    small = (entry for entry in files if (entry.size or 0) < _LFS_POINTER_BYTES)
    return [entry.path for entry in small if _beginning(worktree, entry.path, len(_LFS_HEADER)) == _LFS_HEADER]


def _beginning(root: Path, path: bytes, size: int) -> bytes:
    with open(os.fsencode(root) + b"/" + path, "rb") as handle:
        return handle.read(size)


def used_filters(git: Git, entries: Iterable[Entry]) -> list[dict[str, object]]:
    """The configured clean and smudge filters that apply to files of the snapshot, with the number of files of each."""
    configured = git.run("config", "--null", "--name-only", "--get-regexp", r"^filter\..*", accept=(0, 1))
    if not configured:
        return []
    paths = [entry.path for entry in entries if entry.kind == "file" and entry.owner is None]
    fields = git.run("check-attr", "-z", "--stdin", "filter", stdin=b"".join(path + b"\0" for path in paths)).split(
        b"\0"
    )
    names = [value.decode("utf-8", "replace") for value in fields[2::3]]
    known = {key.split(".", 1)[1].rsplit(".", 1)[0] for key in os.fsdecode(configured).split("\0") if key}
    return [{"name": name, "files": names.count(name)} for name in sorted(known & set(names))]
