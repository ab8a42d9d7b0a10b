"""Every refusal of prepare has a message that says what to do, and a failure half-way leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from vst.errors import ConfigError, VerificationError
from vst.snapshot import prepare as prepare_module
from vst.snapshot.git import Git

from .conftest import REPOSITORY, Bench, commit_all, git, git_directory, picture, run_tool


def assert_nothing_left(bench: Bench, before: dict[str, Any], files: set[str]) -> None:
    assert picture(bench.repo) == before
    assert git_directory(bench.repo) == files
    assert sorted(path.name for path in bench.folder.iterdir() if path.name != "spare") == ["repo"]


def test_untracked_files_that_are_not_named_are_listed(bench: Bench) -> None:
    (bench.repo / "one.py").write_text("1")
    (bench.repo / "dir").mkdir()
    (bench.repo / "dir/two.py").write_text("2")
    before, files = picture(bench.repo), git_directory(bench.repo)
    with pytest.raises(
        VerificationError, match=r"1 untracked(?s:.*)one\.py(?s:.*)--include-untracked, ignored or removed"
    ):
        bench.prepare(include_untracked=("dir",))
    with pytest.raises(VerificationError, match=r"2 untracked(?s:.*)dir/two\.py\n  one\.py"):
        bench.prepare()
    assert_nothing_left(bench, before, files)


@pytest.mark.parametrize("path", ["absent.py", "../outside.py", "/etc/passwd", ".git/config"])
def test_a_named_file_must_exist_inside_the_worktree(bench: Bench, path: str) -> None:
    (bench.folder / "outside.py").write_text("x")
    with pytest.raises(ConfigError, match=r"--include-untracked .* (is not inside|does not exist)"):
        bench.prepare(include_untracked=(path,))


@pytest.mark.parametrize("run_id", ["", "-x", "a/b", "a b", "a..b", ".a", "a.lock", "a.", "a~1", "x" * 129, "a\n"])
def test_a_run_id_that_cannot_name_a_ref_is_wrong_usage(bench: Bench, run_id: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot name a ref and a directory: expected letters, digits"):
        bench.prepare(run_id=run_id)


def test_the_second_run_with_one_id_is_refused(bench: Bench) -> None:
    bench.prepare()
    with pytest.raises(
        VerificationError, match=r"run id run-1 is taken: refs/vst/snapshots/run-1 exists; choose another"
    ):
        bench.prepare(result_dir=bench.folder / "other", worktree_root=bench.folder / "others")


def test_a_result_directory_is_used_once(bench: Bench) -> None:
    bench.prepare()
    with pytest.raises(
        VerificationError, match=r"source-manifest.json exists already; give each run its own --result-dir"
    ):
        bench.prepare(run_id="run-2")


def test_a_directory_in_the_place_of_the_worktree_is_refused(bench: Bench) -> None:
    bench.worktree.mkdir(parents=True)
    with pytest.raises(
        VerificationError, match=r"run-1 exists already, expected no such path(?s:.*)worktree remove --force"
    ):
        bench.prepare()


@pytest.mark.parametrize("place", ["inside", ".git/inside", "ignored/inside"])
def test_the_worktree_may_not_lie_in_the_original(bench: Bench, place: str) -> None:
    with pytest.raises(ConfigError, match=r"--worktree-root .* lies inside the original worktree"):
        bench.prepare(worktree_root=bench.repo / place)


def test_the_result_directory_may_lie_in_the_original_only_where_git_ignores_it(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"--result-dir .* lies inside the original worktree"):
        bench.prepare(result_dir=bench.repo / "results")
    status = git(bench.repo, "status", "--porcelain")
    bench.prepare(result_dir=bench.repo / "ignored/results")
    assert git(bench.repo, "status", "--porcelain") == status


def test_no_repository_a_bare_one_and_one_without_commits(bench: Bench) -> None:
    plain, bare, empty = bench.folder / "plain", bench.folder / "bare", bench.folder / "empty"
    plain.mkdir()
    git(bench.folder, "init", "--quiet", "--bare", str(bare))
    git(bench.folder, "init", "--quiet", str(empty))
    for folder in (plain, bare):
        with pytest.raises(ConfigError, match=r"is not inside a git worktree"):
            bench.prepare(repo=folder)
    with pytest.raises(VerificationError, match=r"has no commit yet(?s:.*)commit once"):
        bench.prepare(repo=empty)
    with pytest.raises(ConfigError, match=r"is not a directory"):
        bench.prepare(repo=bench.folder / "absent")


def test_a_base_must_be_an_ancestor(bench: Bench) -> None:
    git(bench.repo, "checkout", "--quiet", "-b", "side", "HEAD^")
    side = commit_all(bench.repo, "side")
    git(bench.repo, "checkout", "--quiet", "main")
    with pytest.raises(VerificationError, match=rf"base {side} is not an ancestor of HEAD"):
        bench.prepare(base="side")
    with pytest.raises(ConfigError, match=r"--base 'nowhere' is not a commit"):
        bench.prepare(base="nowhere")
    with pytest.raises(ConfigError, match=r"is not a commit"):
        bench.prepare(base="--all")


def test_an_image_must_be_pinned(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"is not pinned by digest(?s:.*)no registry is contacted"):
        bench.prepare(image="registry.invalid/vst-no-such-image:latest")


STEPS = [
    "write-tree",
    "commit-tree",
    "worktree",
    "reset",
    "ls-tree",
    "diff-tree",
    "pack-objects",
    "unpack-objects",
    "update-ref",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_at_any_step_takes_everything_back(bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    (bench.repo / "pkg/core.py").write_text("EDITED = 1\n")
    before, files = picture(bench.repo), git_directory(bench.repo)
    original = Git._call

    def failing(self: Git, args: tuple[Any, ...], *rest: Any) -> Any:
        if step in args and "remove" not in args:
            args = ("vst-no-such-command",)
        return original(self, args, *rest)

    monkeypatch.setattr(Git, "_call", failing)
    with pytest.raises(VerificationError, match="vst-no-such-command"):
        bench.prepare()
    monkeypatch.undo()
    if step == "update-ref":  # the objects are git's by then: unreachable, left to its collection
        files |= {path for path in git_directory(bench.repo) if "/objects/" in path}
    assert_nothing_left(bench, before, files)


def test_a_failure_while_the_last_file_is_published_removes_ref_and_files(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = prepare_module.publish

    def failing(staged: Path, target: Path, undo: Any) -> None:
        if target.name == "source-manifest.json":
            raise OSError("no space left on device")
        original(staged, target, undo)

    monkeypatch.setattr(prepare_module, "publish", failing)
    before, spare = picture(bench.repo), bench.folder / "result"
    spare.mkdir()
    with pytest.raises(OSError, match="no space left"):
        bench.prepare()
    assert list(spare.iterdir()) == [] and not bench.worktree.parent.exists()
    assert git(bench.repo, "for-each-ref", "refs/vst") == "" and picture(bench.repo) == before


def test_a_file_that_is_edited_during_the_capture_is_noticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Git._call

    def editing(self: Git, args: tuple[Any, ...], *rest: Any) -> Any:
        if args[0] == "diff-tree":
            (bench.repo / "pkg/core.py").write_text("LATE = 1\n")
            (bench.repo / "late.py").write_text("LATE = 1\n")
        return original(self, args, *rest)

    monkeypatch.setattr(Git, "_call", editing)
    with pytest.raises(VerificationError, match=r"changed while it was captured(?s:.*)pkg/core.py(?s:.*)late.py"):
        bench.prepare()
    assert not bench.worktree.exists() and git(bench.repo, "for-each-ref", "refs/vst") == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_half_way_takes_everything_back(bench: Bench, number: signal.Signals) -> None:
    ready = bench.folder / "spare"
    git(bench.repo, "config", "filter.slow.clean", "cat")
    git(bench.repo, "config", "filter.slow.smudge", f"touch {ready}; sleep 1; cat")
    (bench.repo / ".gitattributes").write_text("*.slow filter=slow\n")
    (bench.repo / "a.slow").write_text("slow\n")
    commit_all(bench.repo, "slow")
    time.sleep(0.02)
    git(bench.repo, "update-index", "--refresh")
    before, files = picture(bench.repo), git_directory(bench.repo)
    places = ["--result-dir", str(bench.folder / "result"), "--worktree-root", str(bench.folder / "worktrees")]
    command = [sys.executable, "-m", "vst.snapshot", "prepare", "--repo", str(bench.repo), "--run-id", "run-1", *places]
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, env=dict(os.environ))
    deadline = time.monotonic() + 20
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert_nothing_left(bench, before, files)


def test_exit_codes_and_messages_of_the_program(bench: Bench) -> None:
    places = ["--result-dir", bench.folder / "result", "--worktree-root", bench.folder / "worktrees"]
    usage = run_tool("prepare", "--repo", bench.folder / "absent", "--run-id", "a", *places)
    assert usage.returncode == 2 and usage.stderr.startswith("usage: ") and "Traceback" not in usage.stderr
    (bench.repo / "new.py").write_text("x")
    refused = run_tool("prepare", "--repo", bench.repo, "--run-id", "a", *places)
    assert refused.returncode == 11 and refused.stderr.startswith("refused: ") and "new.py" in refused.stderr
    assert run_tool("prepare").returncode == 2 and run_tool().returncode == 2
    for command in ("prepare", "verify", "render-check", "image-digest", "cleanup"):
        assert run_tool(command, "--help").returncode == 0
