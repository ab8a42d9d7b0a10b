"""``prepare``: pin the current state of a worktree as a commit, a ref, a clean worktree and a manifest of digests.

Everything is built aside (objects in quarantine, artifacts in a scratch directory) and given to the world in this
order: worktree, objects, ref, artifacts, manifest. Whatever fails or interrupts, what was made so far is taken back
in reverse.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import ConfigError, VerificationError, VstError
from vst.snapshot import image
from vst.snapshot.capture import Capture, adopt_objects, capture, quarantined, refuse_if_changed
from vst.snapshot.git import Git, GitError
from vst.snapshot.manifest import SnapshotRecord, write_artifacts
from vst.snapshot.patch_stack import lock, read_patch_stack, resolve, shallow_note
from vst.snapshot.repository import Repository, is_within, open_repository
from vst.snapshot.rollback import make_directories, publish, terminated_as_exception
from vst.snapshot.snapshot_verify import MANIFEST_NAME
from vst.snapshot.submodules import populate
from vst.snapshot.untracked import relative_names
from vst.snapshot.worktree import add_worktree, remove_worktree

REF_PREFIX = "refs/vst/snapshots/"
_RUN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock\Z|\Z)){0,127}")


@dataclass(frozen=True)
class Request:
    """What the user asked prepare for; relative ``include_untracked`` paths count from the top of the worktree."""

    repo: Path
    run_id: str
    result_dir: Path
    worktree_root: Path
    base: str | None = None
    patch_stack: Path | None = None
    include_untracked: tuple[str, ...] = ()
    image: str | None = None


def prepare(request: Request) -> Path:
    """Make the snapshot and return the path of its manifest; on any error nothing of it is left."""
    if not _RUN_ID.fullmatch(request.run_id):
        raise ConfigError(
            f"--run-id {request.run_id!r} cannot name a ref and a directory: expected letters, digits, "
            "'.', '_' and '-', beginning with a letter or digit, at most 128"
        )
    repo = open_repository(request.repo)
    worktree = Path(os.path.abspath(request.worktree_root)) / request.run_id
    _refuse_places(request, repo, worktree)
    image_digest = image.compute(request.image) if request.image else None
    with ExitStack() as undo, terminated_as_exception():
        scratch = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="vst-snapshot-")))
        git = quarantined(repo, scratch)
        taken = capture(repo, git, scratch, relative_names(repo.top, list(request.include_untracked)))
        base, stack = _base_and_stack(request, repo.git, taken.head)
        commit = _commit(git, taken, request.run_id)
        made = ExitStack()
        with made:
            _lay_out(repo, git, taken, commit, worktree, scratch, made)
            record = SnapshotRecord(
                request.run_id, repo, taken, base, commit, REF_PREFIX + request.run_id, worktree, image_digest, stack
            )
            manifest = _publish(request, record, git, scratch, made)
            made.pop_all()
    return manifest


def _refuse_places(request: Request, repo: Repository, worktree: Path) -> None:
    """Nothing that prepare writes may appear in the original worktree or in git's own directory."""
    ref = REF_PREFIX + request.run_id
    if repo.git.succeeds("rev-parse", "--verify", "--quiet", ref):
        raise VerificationError(
            f"run id {request.run_id} is taken: {ref} exists; choose another, or clean that snapshot up"
        )
    if os.path.lexists(worktree):
        raise VerificationError(_exists_already(repo, worktree))
    if (request.result_dir / MANIFEST_NAME).exists():
        raise VerificationError(
            f"{request.result_dir / MANIFEST_NAME} exists already; give each run its own --result-dir"
        )
    for option, path in (("--worktree-root", request.worktree_root), ("--result-dir", request.result_dir)):
        inside_git = is_within(path, repo.common_dir) or is_within(path, repo.git_dir)
        ignored = option == "--result-dir" and is_within(path, repo.top) and _is_ignored(repo, path / MANIFEST_NAME)
        if inside_git or (is_within(path, repo.top) and not ignored):
            raise ConfigError(
                f"{option} {path} lies inside the original worktree {repo.top}; choose a place outside it"
            )


def _is_ignored(repo: Repository, path: Path) -> bool:
    plain = repo.git.using(GIT_LITERAL_PATHSPECS="0")  # check-ignore knows no other
    return plain.succeeds("check-ignore", "--quiet", "--", os.path.realpath(path))


def _base_and_stack(request: Request, git: Git, head: str) -> tuple[str, dict[str, Any] | None]:
    stack = lock(git, read_patch_stack(request.patch_stack), head) if request.patch_stack else None
    base = resolve(git, request.base, "--base") if request.base else (stack["base"] if stack else head)
    if stack and base != stack["base"]:
        raise ConfigError(f"--base is {base}, the patch stack's base is {stack['base']}; give one of them")
    if not git.succeeds("merge-base", "--is-ancestor", base, head):
        raise VerificationError(f"base {base} is not an ancestor of HEAD {head}{shallow_note(git)}")
    return base, stack


def _commit(git: Git, taken: Capture, run_id: str) -> str:
    message = f"vst snapshot {run_id}\n"
    return git.line("commit-tree", "--no-gpg-sign", "-p", taken.head, "-m", message, taken.tree)


def _lay_out(
    repo: Repository, git: Git, taken: Capture, commit: str, worktree: Path, scratch: Path, undo: ExitStack
) -> None:
    make_directories(worktree.parent, undo)
    try:
        worktree.mkdir()  # the claim: of two runs with one id only one gets past this line
    except FileExistsError as error:
        raise VerificationError(_exists_already(repo, worktree)) from error
    undo.callback(_take_back, repo, worktree)
    add_worktree(git, repo.common_dir, worktree, commit)
    for module in taken.submodules:
        populate(module, worktree, scratch)


def _take_back(repo: Repository, worktree: Path) -> None:
    with suppress(VstError):
        remove_worktree(repo.git, repo.common_dir, worktree)
    shutil.rmtree(worktree, ignore_errors=True)


def _exists_already(repo: Repository, worktree: Path) -> str:
    return (
        f"{worktree} exists already, expected no such path: the run id is taken; choose another, or remove what an "
        f"interrupted run left: git -C {repo.top} worktree remove --force {worktree}"
    )


def _publish(request: Request, record: SnapshotRecord, git: Git, scratch: Path, undo: ExitStack) -> Path:
    make_directories(request.result_dir, undo)
    staging = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix=".vst-snapshot-", dir=request.result_dir)))
    names = write_artifacts(record, git, staging)
    refuse_if_changed(record.repo, record.taken)
    adopt_objects(record.repo, git, record.commit, record.taken.head)
    _create_ref(record, undo)
    for name in names:
        publish(staging / name, request.result_dir / name, undo)
    staging.rmdir()
    return request.result_dir / MANIFEST_NAME


def _create_ref(record: SnapshotRecord, undo: ExitStack) -> None:
    git = record.repo.git
    try:
        git.run("update-ref", record.ref, record.commit, "0" * len(record.commit))
    except GitError as error:
        raise VerificationError(
            f"run id {record.run_id} is taken: another prepare made {record.ref}; {error}"
        ) from error
    undo.callback(git.run, "update-ref", "-d", record.ref, record.commit)
