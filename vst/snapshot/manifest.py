"""Write the artifacts of a snapshot and the manifest that holds the digests of all of them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from vst.snapshot import snapshot_verify
from vst.snapshot.capture import Capture
from vst.snapshot.git import Git
from vst.snapshot.image import ImageDigest
from vst.snapshot.listing import change_entries, lfs_pointers, to_lines, tree_entries, used_filters
from vst.snapshot.patch import binary_patch
from vst.snapshot.repository import Repository, branch_name, operation
from vst.snapshot.snapshot_verify import MANIFEST_NAME, SCHEMA, Entry, file_digest, named_bytes
from vst.snapshot.submodules import flattened

PATCH, CHANGES, TREE = "source.patch", "source-changes.jsonl", "source-tree.jsonl"
LOCK, VERIFIER = "patch-stack.lock.json", "snapshot_verify.py"


@dataclass(frozen=True)
class SnapshotRecord:
    """Everything that is known about a snapshot when its commit and worktree exist."""

    run_id: str
    repo: Repository
    taken: Capture
    base: str
    commit: str
    ref: str
    worktree: Path
    image: ImageDigest | None
    stack: dict[str, Any] | None


def write_artifacts(record: SnapshotRecord, git: Git, folder: Path) -> list[str]:
    """Write patch, listings, lock, verifier and manifest into ``folder``; their names, the manifest last."""
    entries = tree_entries(git, record.commit, record.worktree, record.taken.submodules)
    changes = change_entries(git, record.base, record.commit, entries)
    contents = {
        "patch": (PATCH, binary_patch(git, record.base, record.commit)),
        "changes": (CHANGES, to_lines(changes)),
        "tree": (TREE, to_lines(entries)),
        "verifier": (VERIFIER, Path(snapshot_verify.__file__).read_bytes()),
    }
    if record.stack is not None:
        contents["patch-stack"] = (LOCK, (json.dumps(record.stack, indent=2, sort_keys=True) + "\n").encode())
    for name, content in contents.values():
        (folder / name).write_bytes(content)
    artifacts = [_artifact(role, folder / name) for role, (name, _) in contents.items()]
    document = {**_facts(record), **_content_facts(record, git, entries, changes), "artifacts": artifacts}
    (folder / MANIFEST_NAME).write_text(json.dumps(document, indent=2, ensure_ascii=True) + "\n", encoding="ascii")
    return [item["name"] for item in artifacts] + [MANIFEST_NAME]


def _artifact(role: str, path: Path) -> dict[str, Any]:
    digest, size = file_digest(str(path))
    return {"role": role, "name": path.name, "sha256": digest, "bytes": size}


def _facts(record: SnapshotRecord) -> dict[str, Any]:
    repo = record.repo
    return {
        "schema": SCHEMA,
        "run_id": record.run_id,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "git_version": repo.git.line("--version").removeprefix("git version "),
        "repository": {
            **named_bytes("path", os.fsencode(repo.top)),
            **named_bytes("common_dir", os.fsencode(repo.common_dir)),
            "object_format": repo.object_format,
            "shallow": repo.git.line("rev-parse", "--is-shallow-repository") == "true",
            "sparse": repo.git.run("config", "--type=bool", "core.sparseCheckout", accept=(0, 1)) == b"true\n",
            "operation": operation(repo),
        },
        "branch": branch_name(repo.git),
        "base": record.base,
        "head": record.taken.head,
        "snapshot": {
            "commit": record.commit,
            "tree": record.taken.tree,
            "ref": record.ref,
            **named_bytes("worktree", os.fsencode(record.worktree)),
        },
        "image": record.image.to_json() if record.image else None,
    }


def _content_facts(record: SnapshotRecord, git: Git, entries: list[Entry], changes: list[Entry]) -> dict[str, Any]:
    return {
        "untracked_included": [named_bytes("path", path) for path in record.taken.included],
        "submodules": [module.to_json() for module in flattened(record.taken.submodules)],
        "filters": used_filters(git.at(record.worktree), entries),
        "lfs_pointers": [named_bytes("path", path) for path in lfs_pointers(entries, record.worktree)],
        "files": len(entries),
        "changed": len(changes),
    }
