"""Make and remove the clean worktree of a snapshot.

Git reads the records of all worktrees when it adds or removes one, and fails on a record that another process is just
writing; so both happen under a lock on the git directory. The long part, the checkout, does not need the lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vst.errors import TransportError, VerificationError
from vst.snapshot.git import Git, GitError

LOCK_TIMEOUT_S = 300
_LOCK_POLL_S = 0.02


def add_worktree(git: Git, common_dir: Path, worktree: Path, commit: str) -> None:
    """Check ``commit`` out at ``worktree``, detached and in full, also when the original is sparse; no hook runs."""
    full = ("-c", "core.sparseCheckout=false")
    try:
        with _locked(common_dir):
            git.run(*full, "worktree", "add", "--quiet", "--detach", "--no-checkout", str(worktree), commit)
        inside = git.at(worktree)
        private = Path(inside.line("rev-parse", "--absolute-git-dir")) / "config.worktree"
        if private.exists():
            git.run("config", "--file", str(private), "core.sparseCheckout", "false")
        inside.run(*full, "-c", "checkout.workers=0", "reset", "--hard", "--quiet", "--no-recurse-submodules", commit)
    except GitError as error:
        raise VerificationError(
            f"the snapshot could not be checked out in {worktree}: {error}\nif objects or a filter are missing, "
            "fetch or install them (git itself may not contact a remote here), then prepare again"
        ) from error


def remove_worktree(git: Git, common_dir: Path, worktree: Path) -> None:
    """Remove a worktree with all that is in it. Forced, because git refuses any worktree that has submodules."""
    with _locked(common_dir):
        git.run("worktree", "remove", "--force", "--force", str(worktree))


@contextmanager
def _locked(common_dir: Path) -> Iterator[None]:
    handle = os.open(common_dir, os.O_RDONLY)
    try:
        _acquire(handle, common_dir)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, common_dir: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise TransportError(
                    f"{common_dir} was locked for {LOCK_TIMEOUT_S} s; is another snapshot stuck?"
                ) from error
        except OSError:
            return None  # a file system without locks: git reports the rare collision itself
        time.sleep(_LOCK_POLL_S)
