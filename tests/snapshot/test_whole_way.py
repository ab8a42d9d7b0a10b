"""prepare, verify, render-check, run in a namespace, cleanup: on a copy of this project and on a large real package."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from .conftest import REPOSITORY, Bench, git, picture, run_tool

LARGE = "sympy==1.13.3"
"""About 2,200 files, from the package index as its source distribution."""


def put_under_git(folder: Path) -> Path:
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "-m", "import")
    return folder


def own_repository(folder: Path) -> Path:
    target = folder / "repo"
    ignore = shutil.ignore_patterns(
        ".git", ".venv*", ".hypothesis", "__pycache__", "*.egg-info", "outputs", "multirun", ".*_cache"
    )
    shutil.copytree(REPOSITORY, target, symlinks=True, ignore=ignore)
    return put_under_git(target)


def large_repository(folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-binary=:all:",
    ]
    done = subprocess.run(
        [*command, LARGE, "--dest", str(folder)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"this test needs a package index for {LARGE}: {done.stderr}"
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()
    (unpacked,) = [path for path in folder.iterdir() if path.is_dir()]
    return put_under_git(unpacked.rename(folder / "repo"))


def walk_the_way(bench: Bench, edited: str, request: str) -> None:
    (bench.repo / edited).write_text((bench.repo / edited).read_text() + "\n# an edit that is not committed\n")
    (bench.repo / "new_module.py").write_text("NEW = 1\n")
    before = picture(bench.repo)
    image = "registry.example/vllm@sha256:" + "e" * 64
    root = bench.folder / "mounted"
    places = ["--result-dir", bench.folder / "result", "--worktree-root", bench.folder / "worktrees"]
    named = ["--include-untracked", "new_module.py", "--image", image]
    manifest = ["--manifest", bench.manifest]
    spec = bench.folder / "job.sh"
    spec.write_text(
        f"#!/bin/sh\ndocker run --rm -v {bench.worktree}:{root}:ro -e PYTHONPATH={root} {image} python -m vst\n"
    )

    def step(*words: object) -> str:
        done = run_tool(*[str(word) for word in words])
        assert done.returncode == 0, (words[0], done.stderr)
        return done.stdout

    step("prepare", "--repo", bench.repo, "--run-id", "run-1", *places, *named)
    assert picture(bench.repo) == before
    step("verify", *manifest)
    script = bench.folder / "check.sh"
    script.write_text(step("render-check", *manifest, "--source-root", root, "--spec", spec), errors="surrogateescape")
    root.mkdir()
    verifier = (
        f"{sys.executable} -I -B {bench.folder}/result/snapshot_verify.py --manifest {bench.manifest} --root {root}"
    )
    inner = (
        f"set -e; mount --bind {bench.worktree} {root}; mount -o remount,bind,ro {root}; sh {script}; {verifier}; "
        f"cd {root}; PYTHONPATH={root} {verifier.replace(' -I', '')} --import {request}"
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inner]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and done.stdout.count("verified: snapshot run-1") == 3, done.stderr
    step("cleanup", *manifest, "--confirm")
    assert not bench.worktree.exists() and picture(bench.repo) == before


def test_the_whole_way_on_this_project(tmp_path: Path) -> None:
    walk_the_way(Bench(tmp_path, own_repository(tmp_path)), "vst/errors.py", "vst=vst")


def test_the_whole_way_on_a_large_real_package(tmp_path: Path) -> None:
    walk_the_way(Bench(tmp_path, large_repository(tmp_path)), "sympy/__init__.py", "isympy=isympy.py")
