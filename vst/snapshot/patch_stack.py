"""A patch stack: the commits that a branch carries on top of its base, in order, checked against history and locked.

The file is YAML::

    base: 1f2e3d4          # any revision
    patches:               # oldest first; every first-parent commit between base and HEAD, none left out
      - {name: fix-loader, commit: 5a6b7c8}
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vst.errors import ConfigError, VerificationError
from vst.snapshot.git import Git
from vst.snapshot.patch import binary_patch


@dataclass(frozen=True)
class Patch:
    """One line of a patch stack file."""

    name: str
    commit: str


@dataclass(frozen=True)
class PatchStack:
    """A parsed patch stack file; commits are as written."""

    base: str
    patches: tuple[Patch, ...]
    digest: str


def read_patch_stack(path: Path) -> PatchStack:
    """Parse the file; ConfigError when it is not a patch stack. Every scalar stays text, so 1234567 is a commit."""
    try:
        raw = path.read_bytes()
        data = yaml.load(raw, Loader=yaml.BaseLoader)
    except OSError as error:
        raise ConfigError(f"cannot read the patch stack {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the patch stack {path} is not YAML: {error}") from error
    if not isinstance(data, dict) or set(data) != {"base", "patches"} or not isinstance(data["base"], str):
        raise ConfigError(f"the patch stack {path} must have exactly the keys base (a revision) and patches (a list)")
    patches = data["patches"] or []
    if not isinstance(patches, list):
        raise ConfigError(f"patches of {path} must be a list of {{name, commit}}")
    return PatchStack(data["base"], tuple(_patch(item, path) for item in patches), hashlib.sha256(raw).hexdigest())


def _patch(item: Any, path: Path) -> Patch:
    if isinstance(item, str):
        return Patch(item, item)
    if not isinstance(item, dict) or "commit" not in item or not set(item) <= {"name", "commit"}:
        raise ConfigError(f"{path}: {item!r} must be a commit or have the keys commit and, if wanted, name")
    return Patch(str(item.get("name", item["commit"])), item["commit"])


def resolve(git: Git, revision: str, meaning: str) -> str:
    """The full name of the commit; ConfigError when the repository has none of that name."""
    if not git.succeeds("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"):
        raise ConfigError(f"{meaning} {revision!r} is not a commit of {git.cwd}{shallow_note(git)}")
    return git.line("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")


def shallow_note(git: Git) -> str:
    """What to do when history is cut, empty when it is not."""
    if git.line("rev-parse", "--is-shallow-repository") != "true":
        return ""
    return "; this clone is shallow, `git fetch --deepen=N` (or --unshallow) brings the history that is missing"


def lock(git: Git, stack: PatchStack, head: str) -> dict[str, Any]:
    """Check the stack against first-parent history of ``head`` and pin it: full commits, trees and patch digests."""
    base = resolve(git, stack.base, "patch stack base")
    history = git.line("rev-list", "--first-parent", head).split()
    if base not in history:
        raise VerificationError(
            f"patch stack base {base} is not on the first-parent history of {head}{shallow_note(git)}"
        )
    actual = history[: history.index(base)][::-1]
    named = [resolve(git, patch.commit, f"patch {patch.name}") for patch in stack.patches]
    _compare(actual, named, stack)
    locked = [_locked(git, patch, commit) for patch, commit in zip(stack.patches, actual, strict=True)]
    return {
        "schema": "vst.patch-stack-lock/1",
        "base": base,
        "head": head,
        "file_sha256": stack.digest,
        "patches": locked,
    }


def _compare(actual: list[str], named: list[str], stack: PatchStack) -> None:
    for position, commit in enumerate(named):
        name = stack.patches[position].name
        if commit not in actual:
            raise VerificationError(
                f"patch {name} ({commit}) is not a first-parent commit between base and HEAD; drop it"
            )
        if commit != actual[position]:
            raise VerificationError(
                f"patch {name} ({commit}) stands at place {position + 1}, history has {actual[position]} there: "
                "a patch is missing before it or the order is wrong"
            )
    if len(actual) > len(named):
        rest = "".join(f"\n  {commit}" for commit in actual[len(named) :])
        raise VerificationError(
            f"{len(actual) - len(named)} commit(s) on HEAD are not in the patch stack:{rest}\nadd them"
        )


def _locked(git: Git, patch: Patch, commit: str) -> dict[str, Any]:
    tree, parent, subject = git.line("show", "-s", "--format=%T%n%P%n%s", commit).split("\n", 2)
    first = parent.split()[0]
    digest = hashlib.sha256(binary_patch(git, first, commit)).hexdigest()
    return {"name": patch.name, "commit": commit, "tree": tree, "subject": subject, "patch_sha256": digest}
