"""What prepare captures, and that the original worktree does not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vst.snapshot import load_and_verify

from .conftest import REPOSITORY, Bench, commit_all, git, git_directory, picture, run_tool


def every_kind_of_change(repo: Path) -> None:
    """Staged, unstaged, both in one file, deleted (staged or not), renamed, mode, symlinks, replaced kinds."""
    (repo / "gone_staged.txt").write_text("1")
    (repo / "gone.txt").write_text("2")
    (repo / "old_name.txt").write_text("a longer text that git takes for the same file after a rename\n")
    (repo / "was_file").write_text("file")
    (repo / "was_dir").mkdir()
    (repo / "was_dir/inner.txt").write_text("inner")
    (repo / "link").symlink_to("run.sh")
    commit_all(repo, "before the changes")
    (repo / "pkg/core.py").write_text("def value():\n    return 2\n")
    git(repo, "add", "pkg/core.py")
    (repo / "pkg/core.py").write_text("def value():\n    return 3\n")
    (repo / "pkg/extra.py").write_text("EXTRA = False\n")
    (repo / "staged.py").write_text("STAGED = 1\n")
    git(repo, "add", "staged.py")
    git(repo, "rm", "--quiet", "gone_staged.txt")
    (repo / "gone.txt").unlink()
    git(repo, "mv", "old_name.txt", "new_name.txt")
    (repo / "run.sh").chmod(0o755)
    (repo / "link").unlink()
    (repo / "link").symlink_to("/outside/the/tree")
    (repo / "dangling").symlink_to("nowhere")
    git(repo, "add", "dangling")
    (repo / "was_file").unlink()
    (repo / "was_file").mkdir()
    (repo / "was_file/now_inside.txt").write_text("x")
    (repo / "was_dir/inner.txt").unlink()
    (repo / "was_dir").rmdir()
    (repo / "was_dir").symlink_to("pkg")
    (repo / "later.py").write_text("LATER = 1\n")
    (repo / "named.txt").write_text("named")


def test_every_kind_of_change_is_captured_and_the_original_is_untouched(bench: Bench) -> None:
    (bench.repo / "pkg/core.py").write_text("STASHED = 1\n")
    git(bench.repo, "stash")
    every_kind_of_change(bench.repo)
    git(bench.repo, "add", "--intent-to-add", "later.py")
    before = picture(bench.repo)
    bench.prepare(include_untracked=("named.txt", "was_file", "was_dir"))
    assert picture(bench.repo) == before

    tree = bench.worktree
    assert (tree / "pkg/core.py").read_text() == "def value():\n    return 3\n"
    assert (tree / "pkg/extra.py").read_text() == "EXTRA = False\n"
    assert (tree / "staged.py").exists() and (tree / "later.py").exists() and (tree / "named.txt").exists()
    assert not (tree / "gone.txt").exists() and not (tree / "gone_staged.txt").exists()
    assert not (tree / "old_name.txt").exists() and (tree / "new_name.txt").exists()
    assert os.access(tree / "run.sh", os.X_OK)
    assert os.readlink(tree / "link") == "/outside/the/tree" and os.readlink(tree / "dangling") == "nowhere"
    assert (tree / "was_file/now_inside.txt").exists() and os.readlink(tree / "was_dir") == "pkg"
    assert git(tree, "status", "--porcelain") == ""
    assert load_and_verify(bench.manifest).worktree == tree


def test_the_snapshot_tree_is_what_git_add_all_would_write(bench: Bench) -> None:
    every_kind_of_change(bench.repo)
    bench.prepare(include_untracked=("named.txt", "was_file", "was_dir", "later.py"))
    git(bench.repo, "add", "--all")
    assert bench.data()["snapshot"]["tree"] == git(bench.repo, "write-tree")


def test_changes_have_one_line_each_with_their_kind(bench: Bench) -> None:
    every_kind_of_change(bench.repo)
    bench.prepare(include_untracked=("named.txt", "was_file", "was_dir", "later.py"))
    kinds = {path.decode(): entry.kind for path, entry in bench.entries("changes").items()}
    assert kinds["pkg/core.py"] == kinds["new_name.txt"] == kinds["run.sh"] == "file"
    assert kinds["link"] == kinds["dangling"] == kinds["was_dir"] == "symlink"
    assert kinds["gone.txt"] == kinds["old_name.txt"] == kinds["was_dir/inner.txt"] == kinds["was_file"] == "deleted"
    assert ".gitignore" not in kinds


def test_the_commit_has_head_as_parent_and_the_ref_of_the_run(bench: Bench) -> None:
    head = git(bench.repo, "rev-parse", "HEAD")
    bench.prepare()
    data = bench.data()
    commit = data["snapshot"]["commit"]
    assert git(bench.repo, "rev-parse", "refs/vst/snapshots/run-1") == commit
    assert git(bench.repo, "rev-parse", f"{commit}^") == head == data["head"] == data["base"]
    assert git(bench.repo, "log", "-1", "--format=%an <%ae>", commit) == "vst snapshot <vst-snapshot@invalid>"
    assert data["branch"] == "refs/heads/main"
    assert git(bench.worktree, "symbolic-ref", "--quiet", "HEAD", check=False) == ""


def test_the_patch_applied_to_the_base_gives_the_snapshot(bench: Bench, tmp_path: Path) -> None:
    base = git(bench.repo, "rev-parse", "HEAD^")
    (bench.repo / "binary.bin").write_bytes(bytes(range(256)) * 20)
    git(bench.repo, "add", "binary.bin")
    bench.prepare(base=base)
    git(bench.repo, "worktree", "add", "--quiet", "--detach", str(tmp_path / "base"), base)
    git(tmp_path / "base", "apply", "--index", str(bench.folder / "result/source.patch"))
    assert git(tmp_path / "base", "write-tree") == bench.data()["snapshot"]["tree"]


def test_artifacts_and_their_digests_are_in_the_manifest(bench: Bench) -> None:
    digest = "sha256:" + "a" * 64
    bench.prepare(image=f"registry.example/vllm@{digest}")
    data = bench.data()
    assert [item["role"] for item in data["artifacts"]] == ["patch", "changes", "tree", "verifier"]
    assert sorted(path.name for path in (bench.folder / "result").iterdir()) == sorted(
        [item["name"] for item in data["artifacts"]] + ["source-manifest.json"]
    )
    assert load_and_verify(bench.manifest).image == digest
    json.loads(bench.manifest.read_text(encoding="ascii"))


def test_an_edit_that_keeps_size_and_time_of_the_index_tick_is_noticed(bench: Bench) -> None:
    path = bench.repo / "pkg/core.py"
    path.write_text("AAAA\n")
    git(bench.repo, "add", "pkg/core.py")
    stamp = path.stat()
    path.write_text("BBBB\n")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    os.utime(bench.repo / ".git/index", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    time.sleep(0.02)
    bench.prepare()
    assert (bench.worktree / "pkg/core.py").read_text() == "BBBB\n"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_an_edit_that_git_was_told_not_to_see_is_captured(bench: Bench, flag: str) -> None:
    git(bench.repo, "update-index", flag, "pkg/core.py")
    (bench.repo / "pkg/core.py").write_text("HIDDEN = 1\n")
    before = picture(bench.repo)
    bench.prepare()
    assert (bench.worktree / "pkg/core.py").read_text() == "HIDDEN = 1\n"
    assert picture(bench.repo) == before


def test_an_ignored_file_comes_in_when_it_is_named_and_only_then(bench: Bench) -> None:
    (bench.repo / "ignored").mkdir()
    (bench.repo / "ignored/a.txt").write_text("a")
    (bench.repo / "ignored/b.txt").write_text("b")
    bench.prepare(include_untracked=("ignored/a.txt",))
    assert (bench.worktree / "ignored/a.txt").exists() and not (bench.worktree / "ignored/b.txt").exists()
    assert bench.data()["untracked_included"] == [{"path": "ignored/a.txt"}]


def test_a_subdirectory_and_a_linked_worktree_are_accepted_as_repo(bench: Bench, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(bench.repo, "worktree", "add", "--quiet", "-b", "side", str(linked))
    (linked / "pkg/core.py").write_text("SIDE = 1\n")
    before, main_before = picture(linked), picture(bench.repo)
    bench.prepare(repo=linked / "pkg")
    assert picture(linked) == before and picture(bench.repo) == main_before
    assert bench.data()["branch"] == "refs/heads/side"
    assert (bench.worktree / "pkg/core.py").read_text() == "SIDE = 1\n"
    load_and_verify(bench.manifest)


def test_git_variables_of_the_caller_do_not_redirect(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent/index")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    bench.prepare()
    load_and_verify(bench.manifest)


def test_detached_head_has_no_branch(bench: Bench) -> None:
    git(bench.repo, "checkout", "--quiet", "--detach")
    bench.prepare()
    assert bench.data()["branch"] is None


@pytest.fixture
def spying_hooks(bench: Bench, tmp_path: Path) -> Path:
    """Every hook that git knows, an fsmonitor program and a pager, each of which leaves a trace when it runs."""
    trace = tmp_path / "trace"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    names = """applypatch-msg commit-msg post-applypatch post-checkout post-commit post-index-change post-merge
    post-rewrite pre-applypatch pre-auto-gc pre-commit pre-merge-commit prepare-commit-msg pre-push pre-rebase
    reference-transaction fsmonitor"""
    for place in (hooks, bench.repo / ".git/hooks"):
        place.mkdir(exist_ok=True)
        for name in names.split():
            (place / name).write_text(f"#!/bin/sh\necho {name} >> {trace}\n")
            (place / name).chmod(0o755)
    return trace


@pytest.mark.parametrize("configured", [True, False])
def test_no_hook_of_the_repository_runs(bench: Bench, spying_hooks: Path, tmp_path: Path, configured: bool) -> None:
    if configured:
        git(bench.repo, "config", "core.hooksPath", str(tmp_path / "hooks"))
    git(bench.repo, "config", "core.fsmonitor", str(tmp_path / "hooks/fsmonitor"))
    git(bench.repo, "config", "diff.external", str(tmp_path / "hooks/fsmonitor"))
    git(bench.repo, "status")
    assert spying_hooks.exists(), "the hooks of this test would run under plain git"
    spying_hooks.unlink()
    (bench.repo / "pkg/core.py").write_text("EDITED = 1\n")
    bench.prepare()
    load_and_verify(bench.manifest)
    assert run_tool("cleanup", "--manifest", bench.manifest, "--confirm").returncode == 0
    assert not spying_hooks.exists()


def test_concurrent_prepares_of_one_repository_all_succeed(bench: Bench) -> None:
    (bench.repo / "pkg/core.py").write_text("EDITED = 1\n")
    before = picture(bench.repo)
    started = [_start(bench, f"run-{number}", f"result-{number}") for number in range(6)]
    answers = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0] * 6, answers
    assert picture(bench.repo) == before
    for number in range(6):
        load_and_verify(bench.folder / f"result-{number}/source-manifest.json")


@pytest.mark.parametrize("trees", ["trees", "trees-{}"], ids=["one place", "own places"])
def test_of_concurrent_prepares_with_one_id_exactly_one_succeeds(bench: Bench, trees: str) -> None:
    started = [_start(bench, "run-1", f"result-{number}", trees.format(number)) for number in range(4)]
    answers = [process.communicate()[1] for process in started]
    codes = sorted(process.returncode for process in started)
    assert codes == [0, 11, 11, 11], answers
    assert all("taken" in text for process, text in zip(started, answers, strict=True) if process.returncode)
    left = list(bench.folder.glob("trees*/run-1"))
    assert len(left) == 1
    assert len(git(bench.repo, "worktree", "list", "--porcelain").split("\n\n")) == 2
    load_and_verify(next(bench.folder.glob("result-*/source-manifest.json")))


def _start(bench: Bench, run_id: str, result: str, trees: str = "worktrees") -> subprocess.Popen[str]:
    places = ["--result-dir", str(bench.folder / result), "--worktree-root", str(bench.folder / trees)]
    command = [
        sys.executable,
        "-B",
        "-m",
        "vst.snapshot",
        "prepare",
        "--repo",
        str(bench.repo),
        "--run-id",
        run_id,
        *places,
    ]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_the_output_names_what_was_made(bench: Bench) -> None:
    places = ["--result-dir", bench.folder / "result", "--worktree-root", bench.folder / "worktrees"]
    done = run_tool("prepare", "--repo", bench.repo, "--run-id", "run-1", *places)
    assert done.returncode == 0, done.stderr
    facts = load_and_verify(bench.manifest)
    for text in (facts.commit, facts.ref, str(facts.worktree), facts.manifest_digest):
        assert text in done.stdout


def test_nothing_else_appears_in_the_git_directory(bench: Bench) -> None:
    before = git_directory(bench.repo)
    bench.prepare()
    new = {path.removeprefix(str(bench.repo / ".git") + "/") for path in git_directory(bench.repo) - before}
    assert {path.split("/")[0] for path in new} == {"objects", "refs", "worktrees"}
    assert not before - git_directory(bench.repo)
