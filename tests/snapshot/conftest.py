"""Real repositories for the snapshot tests, and a picture of one that shows any change to it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vst.snapshot.facts import read_manifest
from vst.snapshot.prepare import Request, prepare
from vst.snapshot.snapshot_verify import Entry, read_entries

REPOSITORY = Path(__file__).resolve().parents[2]


def git(repo: Path, *args: str | bytes, check: bool = True, **environment: str) -> str:
    """Run git as a user would."""
    env = {**os.environ, **environment}
    done = subprocess.run(["git", *args], cwd=repo, env=env, capture_output=True, check=False)
    if check and done.returncode:
        raise AssertionError(f"git {args} failed: {os.fsdecode(done.stderr)}")
    return os.fsdecode(done.stdout).strip()


def make_repo(path: Path, *options: str) -> Path:
    """A repository with a small package, committed twice."""
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main", *options)
    (path / "pkg").mkdir()
    (path / "pkg/__init__.py").write_text("NAME = 'pkg'\n")
    (path / "pkg/core.py").write_text("def value():\n    return 1\n")
    (path / "run.sh").write_text("#!/bin/sh\necho run\n")
    (path / ".gitignore").write_text("ignored/\n*.log\n__pycache__/\n")
    commit_all(path, "first")
    (path / "pkg/extra.py").write_text("EXTRA = True\n")
    commit_all(path, "second")
    return path


def commit_all(repo: Path, message: str) -> str:
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(repo, "rev-parse", "HEAD")


def picture(repo: Path) -> dict[str, Any]:
    """Everything about a worktree and its git directory that a snapshot must leave alone."""
    git_dir = repo / git(repo, "rev-parse", "--git-dir")
    index = git_dir / "index"
    seen: dict[str, Any] = {"index": _file_facts(index), "head": (git_dir / "HEAD").read_bytes()}
    for folder, folders, files in os.walk(os.fsencode(repo)):
        if folder == os.fsencode(repo):
            folders[:] = [name for name in folders if name != b".git"]
        for name in [b".", *folders, *files]:
            path = os.path.join(folder, name)
            seen[os.fsdecode(path)] = _file_facts(Path(os.fsdecode(path)))
    refs = git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    seen["refs"] = [ref for ref in refs if not ref.startswith("refs/vst/")]
    seen["config"] = _file_facts(git_dir / "config") if (git_dir / "config").exists() else None
    seen["stash"] = git(repo, "stash", "list")
    seen["status"] = git(repo, "status", "--porcelain=v2", "--branch", "-z", "--ignored", GIT_OPTIONAL_LOCKS="0")
    return seen


def git_directory(repo: Path) -> set[str]:
    """The names of all files in .git."""
    return {os.fsdecode(path) for path in map(os.fsencode, (repo / ".git").rglob("*")) if os.path.isfile(path)}


def _file_facts(path: Path) -> tuple[Any, ...]:
    if not os.path.lexists(path):
        return ("absent",)
    status = path.lstat()
    content: Any = None
    if path.is_symlink():
        content = os.readlink(os.fsencode(path))
    elif path.is_file():
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    return (oct(status.st_mode), status.st_mtime_ns, status.st_size if content else None, status.st_ino, content)


@dataclass
class Bench:
    """One repository with places for results and worktrees."""

    folder: Path
    repo: Path

    @property
    def worktree(self) -> Path:
        return self.folder / "worktrees" / "run-1"

    @property
    def manifest(self) -> Path:
        return self.folder / "result" / "source-manifest.json"

    def request(self, **changes: Any) -> Request:
        values: dict[str, Any] = {
            "repo": self.repo,
            "run_id": "run-1",
            "result_dir": self.folder / "result",
            "worktree_root": self.folder / "worktrees",
        }
        return Request(**{**values, **changes})

    def prepare(self, **changes: Any) -> Path:
        return prepare(self.request(**changes))

    def entries(self, role: str = "tree") -> dict[bytes, Entry]:
        path = read_manifest(self.manifest).artifact(role)
        assert path is not None
        return {entry.path: entry for entry in read_entries(path)}

    def data(self) -> dict[str, Any]:
        return read_manifest(self.manifest).data


def run_tool(*args: str | Path, cwd: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m vst.snapshot`` as a user runs it."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    command = [sys.executable, "-B", "-m", "vst.snapshot", *map(str, args)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, errors="replace", check=False)


@pytest.fixture(autouse=True, scope="session")
def _plain_git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nobody's own git configuration decides a test."""
    config = tmp_path_factory.mktemp("home") / "gitconfig"
    config.write_text('[user]\n\tname = Tester\n\temail = tester@invalid\n[protocol "file"]\n\tallow = always\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(config))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.delenv("PYTHONPATH", raising=False)
        yield


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, make_repo(tmp_path / "repo"))


@pytest.fixture
def bench_with(tmp_path: Path) -> Callable[..., Bench]:
    """A bench on a repository made with other ``git init`` options."""
    return lambda *options: Bench(tmp_path, make_repo(tmp_path / "repo", *options))
