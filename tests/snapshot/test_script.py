"""The rendered shell script finds what the Python verifier finds, also on real mounts in a mount namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vst.errors import ConfigError, VerificationError
from vst.snapshot import load_and_verify
from vst.snapshot.render_check import render_check

from .conftest import Bench, git, run_tool
from .test_repository_shapes import write_odd_names
from .test_verify import MUTATIONS

SHELLS = {"sh": ["sh"], "bash": ["bash", "--posix"]}


@pytest.fixture
def ready(bench: Bench) -> Bench:
    """A snapshot with odd names, links, an executable and a package."""
    write_odd_names(bench.repo)
    (bench.repo / "run.sh").chmod(0o755)
    (bench.repo / "link").symlink_to("pkg/core.py")
    (bench.repo / "folder link").symlink_to("pkg")
    (bench.repo / "data file.txt").write_text("data\n")
    git(bench.repo, "add", "--all")
    bench.prepare()
    return bench


def script(bench: Bench, root: str | Path) -> Path:
    path = bench.folder / "check.sh"
    path.write_bytes(render_check(bench.manifest, str(root), None))
    return path


def run(command: list[str], **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=options or None, timeout=60
    )


def tools_only(folder: Path, *names: str) -> str:
    """A PATH with these programs and no others."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found, f"{name} is not on this machine"
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_good_tree_passes_with_nothing_but_sha256sum_and_readlink(ready: Bench, shell: str) -> None:
    path = tools_only(ready.folder / "bin", "sha256sum", "readlink", *SHELLS[shell][:1])
    done = run([*SHELLS[shell], str(script(ready, ready.worktree))], PATH=path)
    assert done.returncode == 0, done.stderr
    assert f"verified: snapshot run-1, {len(ready.entries())} file(s) under {ready.worktree}" in done.stdout


@pytest.mark.parametrize("program", ["shasum", "openssl"])
def test_another_digest_program_serves_as_well(ready: Bench, program: str) -> None:
    path = tools_only(ready.folder / "bin", program, "readlink", "sh", *(["perl"] if program == "shasum" else []))
    assert run(["sh", str(script(ready, ready.worktree))], PATH=path).returncode == 0
    (ready.worktree / "pkg/core.py").write_text("CHANGED = 1\n")
    done = run(["sh", str(script(ready, ready.worktree))], PATH=path)
    assert done.returncode == 11 and "./pkg/core.py has sha256" in done.stderr


def test_without_any_digest_program_it_refuses(ready: Bench) -> None:
    path = tools_only(ready.folder / "bin", "sh")
    done = run(["sh", str(script(ready, ready.worktree))], PATH=path)
    assert done.returncode == 11 and "sha256sum, shasum and openssl are missing" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_that_python_finds_is_found(ready: Bench, name: str, shell: str) -> None:
    check = script(ready, ready.worktree)
    MUTATIONS[name][0](ready.worktree)
    done = run([*SHELLS[shell], str(check)])
    assert done.returncode == 11, done.stdout
    assert "problem(s) with snapshot run-1" in done.stderr


def test_a_change_to_any_single_file_is_found_and_named(ready: Bench) -> None:
    check = script(ready, ready.worktree)
    for path, entry in ready.entries().items():
        full = ready.worktree / os.fsdecode(path)
        if entry.kind != "file":
            continue
        original = full.read_bytes()
        full.write_bytes(original + b"x")
        done = subprocess.run(["sh", str(check)], capture_output=True, check=False)
        assert done.returncode == 11 and path.rstrip(b"\n") in done.stderr.replace(b"\\n", b"\n").replace(
            b"\\\\", b"\\"
        )
        full.write_bytes(original)
    assert run(["sh", str(check)]).returncode == 0


def test_an_extra_link_that_is_no_package_and_other_data_are_no_problem(ready: Bench) -> None:
    check = script(ready, ready.worktree)
    (ready.worktree / "output.txt").write_text("x")
    (ready.worktree / "output link").symlink_to("output.txt")
    assert run(["sh", str(check)]).returncode == 0


def test_names_cannot_run_anything(bench: Bench) -> None:
    trap = bench.folder / "trap"
    for name in (
        f"$(touch {trap.name})",
        f"`touch {trap.name}`",
        "'; touch trap; '",
        '"; touch trap; "',
        "a\n; touch trap\n",
    ):
        (bench.repo / name).write_text("x")
    bench.prepare(include_untracked=(".",))
    done = subprocess.run(["sh", str(script(bench, bench.worktree))], cwd=bench.folder, check=False)
    assert done.returncode == 0 and not trap.exists() and not (bench.worktree / "trap").exists()


def test_a_root_with_odd_characters_works(ready: Bench) -> None:
    odd = ready.folder / 'it\'s a "root" $HOME'
    shutil.copytree(ready.worktree, odd, symlinks=True)
    assert run(["sh", str(script(ready, odd))]).returncode == 0


@pytest.mark.parametrize("root", ["relative", "/", "//", "/.."])
def test_the_root_must_be_absolute_and_below_the_top(ready: Bench, root: str) -> None:
    with pytest.raises(ConfigError, match="must be the absolute path of the snapshot in the container"):
        render_check(ready.manifest, root, None)


def test_changed_artifacts_are_refused_before_a_script_is_made(ready: Bench) -> None:
    with (ready.folder / "result/source-tree.jsonl").open("ab") as handle:
        handle.write(b"\n")
    with pytest.raises(VerificationError, match="artifact source-tree.jsonl has sha256"):
        render_check(ready.manifest, "/src", None)


def test_the_program_prints_the_script(ready: Bench) -> None:
    done = run_tool("render-check", "--manifest", ready.manifest, "--source-root", "/src")
    assert done.returncode == 0 and done.stdout.startswith("#!/bin/sh\n") and "root='/src'" in done.stdout


def in_namespace(
    bench: Bench, mounts: str
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """Run script and standalone verifier where the worktree is mounted at ``mnt`` after the given mount commands."""
    root = bench.folder / "mnt"
    root.mkdir(exist_ok=True)
    (bench.folder / "mounts.sh").write_text(f"set -e\ncd {bench.folder}\nW={bench.worktree}\nR={root}\n{mounts}\n")
    program = bench.folder / "result/snapshot_verify.py"
    verifier = f"{shutil.which('python3')} -B {program} --manifest {bench.manifest} --root {root}"
    answers = []
    for command in (f"sh {script(bench, root)}", verifier):
        inner = f". {bench.folder}/mounts.sh; exec {command}"
        done = run(["unshare", "--mount", "--propagation", "private", "sh", "-c", inner])
        assert "Operation not permitted" not in done.stderr, (
            "this test needs the right to make a mount namespace (root or CAP_SYS_ADMIN): " + done.stderr
        )
        answers.append(done)
    return answers[0], answers[1]


READ_ONLY = 'mount --bind "$W" "$R"; mount -o remount,bind,ro "$R"'


def test_a_read_only_bind_mount_passes_in_a_namespace(ready: Bench) -> None:
    for done in in_namespace(ready, READ_ONLY + '; if touch "$R/x" 2>/dev/null; then exit 5; fi'):
        assert done.returncode == 0, done.stderr


def test_a_file_that_is_bind_mounted_over_another_is_found(ready: Bench) -> None:
    (ready.folder / "evil.py").write_text("def value():\n    return 666\n")
    for done in in_namespace(ready, READ_ONLY + '; mount --bind evil.py "$R/pkg/core.py"'):
        assert done.returncode == 11, done.stdout
        assert "pkg/core.py" in done.stderr and "sha256" in done.stderr
        assert "something is mounted on" in done.stderr


def test_a_mount_below_the_root_is_found_even_with_equal_content(ready: Bench) -> None:
    shutil.copy2(ready.worktree / "pkg/core.py", ready.folder / "same.py")
    for done in in_namespace(ready, READ_ONLY + '; mount --bind same.py "$R/pkg/core.py"'):
        assert done.returncode == 11
        assert f"something is mounted on {ready.folder}/mnt/pkg/core.py, below the root" in done.stderr


OVERLAY = """mkdir -p over; mount -t tmpfs none over; mkdir over/upper over/work
{prepare}
mount -t overlay overlay -o lowerdir="$W",upperdir=over/upper,workdir=over/work "$R" """


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("mkdir over/upper/pkg; echo 'EVIL = 1' > over/upper/pkg/core.py", "pkg/core.py"),
        ("echo 'EVIL = 1' > over/upper/json.py", "json.py"),
        ("mknod over/upper/run.sh c 0 0", "run.sh"),
    ],
    ids=["changed", "added", "removed"],
)
def test_an_overlay_that_changes_the_tree_is_found(ready: Bench, prepare: str, message: str) -> None:
    for done in in_namespace(ready, OVERLAY.format(prepare=prepare)):
        assert done.returncode == 11 and message in done.stderr, done.stdout + done.stderr


def test_an_overlay_that_changes_nothing_passes(ready: Bench) -> None:
    for done in in_namespace(ready, OVERLAY.format(prepare="")):
        assert done.returncode == 0, done.stderr


def test_the_original_worktree_in_place_of_the_snapshot_is_found(ready: Bench) -> None:
    (ready.repo / "pkg/core.py").write_text("LATER = 1\n")
    for done in in_namespace(ready, f'mount --bind {ready.repo} "$R"'):
        assert done.returncode == 11 and "pkg/core.py" in done.stderr
    load_and_verify(ready.manifest)
