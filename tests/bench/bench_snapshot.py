"""How long ``prepare`` takes on a large tree, beside what git itself needs for ``git add -A && git write-tree``.

Usage: python tests/bench/bench_snapshot.py [--files 100000] [--repeats 3] [--folder DIR]

The tree is committed and packed (as a clone is; no collection may run beside the measurement), then 100 files are
edited, 50 deleted and 50 untracked files added. Each repetition is a fresh run of the program; git works with a copy of
the index, so that the original stays as it is. ``git worktree add`` is the part of prepare that lays the files out.
Nothing is deleted before the last measurement: ext4 is slow to make files for half a minute after many were deleted.
Times are seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET_S = 10.0
STEPS = ("git_add_write_tree", "git_worktree_add", "prepare", "verify", "cleanup")


def git(repo: Path, *args: str, **environment: str) -> None:
    """One git command that must succeed."""
    identity = {"GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@invalid"}
    committer = {"GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@invalid"}
    env = {**os.environ, **identity, **committer, **environment}
    subprocess.run(["git", *args], cwd=repo, env=env, check=True, stdout=subprocess.DEVNULL)


def make_repository(repo: Path, files: int) -> None:
    """A committed tree of small files, 100 in a folder, then edits on top."""
    repo.mkdir(parents=True)
    git(repo, "init", "--quiet")
    git(repo, "config", "gc.auto", "0")
    for number in range(files):
        path = repo / f"part{number // 10000:02d}" / f"group{number // 100 % 100:02d}" / f"module_{number:06d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"VALUE = {number}\n" * 20)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "tree")
    git(repo, "repack", "-a", "-d", "-q")
    paths = sorted(repo.glob("part00/*/*.py"))
    for path in paths[:100]:
        path.write_text("EDITED = True\n")
    for path in paths[100:150]:
        path.unlink()
    (repo / "new").mkdir()
    for number in range(50):
        (repo / "new" / f"added_{number}.py").write_text(f"NEW = {number}\n")


def timed(action: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock and seconds of processor time; a busy machine shows in the difference."""
    start, used = time.perf_counter(), _children_cpu()
    action()
    return time.perf_counter() - start, _children_cpu() - used


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_prepare(repo: Path, folder: Path, name: str) -> None:
    places = ["--result-dir", str(folder / f"{name}-result"), "--worktree-root", str(folder / "worktrees")]
    command = [sys.executable, "-m", "vst.snapshot", "prepare", "--repo", str(repo), "--run-id", name, *places]
    subprocess.run([*command, "--include-untracked", "new"], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)


def run_plain_git(repo: Path, folder: Path, name: str) -> None:
    index = folder / f"{name}-index"
    shutil.copy2(repo / ".git" / "index", index)
    git(repo, "add", "--all", GIT_INDEX_FILE=str(index))
    git(repo, "write-tree", GIT_INDEX_FILE=str(index))


def run_command(*words: str) -> None:
    command = [sys.executable, "-m", "vst.snapshot", *words]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)


def measure(folder: Path, files: int, repeats: int) -> dict[str, object]:
    """Medians of every step on one tree."""
    repo = folder / "repository"
    make_repository(repo, files)
    os.sync()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in STEPS}
    names = [f"bench-{number}" for number in range(repeats)]
    for name in names:
        manifest = str(folder / f"{name}-result" / "source-manifest.json")
        plain = str(folder / f"{name}-plain")
        times["git_add_write_tree"].append(timed(lambda name=name: run_plain_git(repo, folder, name)))
        times["git_worktree_add"].append(
            timed(lambda path=plain: git(repo, "worktree", "add", "--quiet", "--detach", path))
        )
        times["prepare"].append(timed(lambda name=name: run_prepare(repo, folder, name)))
        times["verify"].append(timed(lambda path=manifest: run_command("verify", "--manifest", path)))
    for name in names:
        manifest = str(folder / f"{name}-result" / "source-manifest.json")
        times["cleanup"].append(timed(lambda path=manifest: run_command("cleanup", "--manifest", path, "--confirm")))
    medians = {name: round(statistics.median(wall for wall, _ in values), 3) for name, values in times.items()}
    return {
        "files": files,
        "cpus": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 2),
        "median_s": medians,
        "median_cpu_s": {name: round(statistics.median(cpu for _, cpu in values), 3) for name, values in times.items()},
        "runs_s": {name: [round(wall, 3) for wall, _ in values] for name, values in times.items()},
        "target_s": TARGET_S,
        "held": medians["prepare"] < TARGET_S,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-snapshot-", dir=arguments.folder) as folder:
        result = measure(Path(folder), arguments.files, arguments.repeats)
    print(json.dumps(result, indent=2))
    return 0 if result["held"] else 1


if __name__ == "__main__":
    sys.exit(main())
