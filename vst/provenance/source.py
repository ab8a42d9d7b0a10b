"""The source block: which code ran. Git is only read; nothing of the repository is refreshed or locked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vst
from vst.errors import TransportError, VerificationError
from vst.provenance.block import Block
from vst.provenance.imports import package_facts
from vst.provenance.redaction import Scrubber
from vst.snapshot.git import Git

DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--binary", "--full-index", "HEAD")
GIT_KEYS = ("repository", "remote", "commit", "tree", "dirty", "patch", "untracked")


def source_facts(scrubber: Scrubber) -> dict[str, Any]:
    """Repository, commit, tree, dirty flag and patch digest of the tree that vst was imported from, and its digest."""
    block = Block()
    place = Path(vst.__file__).resolve()
    try:
        found: Mapping[str, Any] = _git_facts(Git(place.parent), place, scrubber)
    except (VerificationError, TransportError) as error:
        first = str(error).partition("\n")[0]
        found = dict.fromkeys(GIT_KEYS)
        reason = f"{place.parent} is not tracked by a git worktree: {first}"
    else:
        reason = "the repository has no remote"
    for key in GIT_KEYS:
        block.put(key, found[key], reason if found["commit"] is None or key != "patch" else "there are no changes")
    return block.put("vst", package_facts("vst")).to_json()


def _git_facts(git: Git, place: Path, scrubber: Scrubber) -> dict[str, Any]:
    git.run("ls-files", "--error-unmatch", place.name)
    top = Path(git.line("rev-parse", "--show-toplevel"))
    git = git.at(top)
    status = git.records("status", "--porcelain=v1", "--untracked-files=all", "-z")
    patch = git.run(*DIFF)
    remotes = git.line("remote").split()
    return {
        "repository": str(top),
        "remote": scrubber.text(git.line("remote", "get-url", remotes[0])) if remotes else None,
        "commit": git.line("rev-parse", "HEAD^{commit}"),
        "tree": git.line("rev-parse", "HEAD^{tree}"),
        "dirty": bool(status),
        "patch": "sha256:" + hashlib.sha256(patch).hexdigest() if patch else None,
        "untracked": sum(record.startswith(b"?? ") for record in status),
    }
