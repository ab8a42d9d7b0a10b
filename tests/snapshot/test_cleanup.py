"""Cleanup removes the worktree and the ref of one snapshot, only when nothing would be lost."""

from __future__ import annotations

import py_compile
from collections.abc import Callable
from pathlib import Path

import pytest

from vst.errors import ConfigError, VerificationError
from vst.snapshot.cleanup import cleanup

from .conftest import Bench, git, git_directory, picture, run_tool
from .test_repository_shapes import with_submodule


def test_it_removes_worktree_and_ref_and_nothing_else(bench: Bench) -> None:
    (bench.repo / "pkg/core.py").write_text("EDITED = 1\n")
    before, files = picture(bench.repo), git_directory(bench.repo)
    bench.prepare()
    other = bench.folder / "other"
    bench.prepare(run_id="run-2", result_dir=other)
    result = sorted(path.name for path in (bench.folder / "result").iterdir())
    cleanup(bench.manifest, confirm=True)
    assert not bench.worktree.exists() and (bench.folder / "worktrees/run-2/run.sh").exists()
    assert git(bench.repo, "for-each-ref", "--format=%(refname)", "refs/vst") == "refs/vst/snapshots/run-2"
    assert sorted(path.name for path in (bench.folder / "result").iterdir()) == result
    cleanup(other / "source-manifest.json", confirm=True)
    assert picture(bench.repo) == before
    assert {path for path in git_directory(bench.repo) - files if "/objects/" not in path} == set()


def test_without_confirm_it_only_says_what_it_would_do(bench: Bench) -> None:
    bench.prepare()
    with pytest.raises(
        ConfigError, match=r"nothing was removed; with --confirm this removes the worktree .*run-1 and the ref"
    ):
        cleanup(bench.manifest, confirm=False)
    assert bench.worktree.exists()
    assert run_tool("cleanup", "--manifest", bench.manifest).returncode == 2


def stage(worktree: Path) -> None:
    (worktree / "pkg/core.py").write_text("STAGED = 1\n")
    git(worktree, "add", "pkg/core.py")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited": (lambda tree: (tree / "run.sh").write_text("x"), r"run.sh has sha256"),
    "deleted": (lambda tree: (tree / "run.sh").unlink(), r"run.sh is missing"),
    "staged": (stage, r"holds staged changes"),
    "untracked": (lambda tree: (tree / "result.txt").write_text("x"), r"result.txt was added"),
    "ignored": (
        lambda tree: (tree / "a.log").write_text("x"),
        r"holds 1 file\(s\) of no snapshot(?s:.*)a.log(?s:.*)move",
    ),
    "committed": (lambda tree: git(tree, "commit", "--allow-empty", "-q", "-m", "x"), r"HEAD of .* expected detached"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_worktree_with_changes_is_kept(bench: Bench, name: str) -> None:
    bench.prepare()
    change, message = CHANGES[name]
    change(bench.worktree)
    with pytest.raises(VerificationError, match=r"nothing was removed(?s:.*)" + message):
        cleanup(bench.manifest, confirm=True)
    assert bench.worktree.exists() and git(bench.repo, "rev-parse", "refs/vst/snapshots/run-1")


def test_bytecode_is_no_change(bench: Bench) -> None:
    bench.prepare()
    py_compile.compile(str(bench.worktree / "pkg/core.py"), doraise=True)
    cleanup(bench.manifest, confirm=True)
    assert not bench.worktree.exists()


def test_a_snapshot_with_submodules_is_removed_and_the_submodules_stay(bench: Bench) -> None:
    library = with_submodule(bench)
    bench.prepare()
    before = picture(bench.repo)
    cleanup(bench.manifest, confirm=True)
    assert not bench.worktree.exists() and picture(bench.repo) == before
    assert git(library, "status", "--porcelain") == ""


def test_a_second_cleanup_says_that_the_worktree_is_gone(bench: Bench) -> None:
    bench.prepare()
    cleanup(bench.manifest, confirm=True)
    with pytest.raises(VerificationError, match=r"nothing was removed(?s:.*)is missing"):
        cleanup(bench.manifest, confirm=True)
