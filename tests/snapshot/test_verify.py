"""Verification finds every difference, outside with git and inside with the standard library alone."""

from __future__ import annotations

import ast
import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vst.errors import ConfigError, VerificationError
from vst.snapshot import load_and_verify, snapshot_verify

from .conftest import Bench, git, run_tool


@pytest.fixture
def ready(bench: Bench) -> Bench:
    """A snapshot with a file, an executable, a link and an odd name."""
    (bench.repo / "run.sh").chmod(0o755)
    (bench.repo / "link").symlink_to("pkg/core.py")
    (bench.repo / "data file.txt").write_text("data\n")
    git(bench.repo, "add", "--all")
    bench.prepare()
    return bench


def edit(path: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / path).write_text(text)


def replace_by_link(root: Path) -> None:
    (root / "pkg/core.py").rename(root.parent / "elsewhere.py")
    (root / "pkg/core.py").symlink_to(root.parent / "elsewhere.py")


def replace_folder_by_link(root: Path) -> None:
    (root / "pkg").rename(root.parent / "elsewhere")
    (root / "pkg").symlink_to(root.parent / "elsewhere")


def point_elsewhere(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("pkg/extra.py")


def add_link_to_folder(root: Path) -> None:
    (root / "package").symlink_to("/tmp")


def add_entry_points(root: Path) -> None:
    (root / "x-1.dist-info").mkdir()
    (root / "x-1.dist-info/entry_points.txt").write_text("[vllm.general_plugins]\nx = x:y\n")


MUTATIONS: dict[str, tuple[Callable[[Path], object], str]] = {
    "content": (edit("pkg/core.py", "def value():\n    return 9\n"), r"pkg/core.py has sha256 .* expected"),
    "same size": (edit("pkg/extra.py", "EXTRA = tRUE\n"), r"pkg/extra.py has sha256"),
    "missing": (lambda root: (root / "data file.txt").unlink(), r'"data file.txt" is missing, expected a file'),
    "executable": (
        lambda root: (root / "pkg/core.py").chmod(0o755),
        r"pkg/core.py is executable, expected mode 100644",
    ),
    "not executable": (lambda root: (root / "run.sh").chmod(0o644), r"run.sh is not executable, expected mode 100755"),
    "link target": (point_elsewhere, r"link points to pkg/extra.py, expected pkg/core.py"),
    "file to link": (replace_by_link, r"pkg/core.py is a symlink, expected a file"),
    "folder to link": (replace_folder_by_link, r"pkg/core.py is missing(?s:.*)pkg is an extra link to a directory"),
    "fifo": (lambda root: ((root / "run.sh").unlink(), os.mkfifo(root / "run.sh")), r"run.sh is a special file"),
    "extra module": (edit("numpy.py", ""), r"numpy.py is not in the snapshot and could be imported"),
    "extra extension": (edit("pkg/core.cpython-311-x86_64-linux-gnu.so", ""), r"linux-gnu.so is not in the snapshot"),
    "old bytecode": (edit("pkg/core.pyc", ""), r"pkg/core.pyc is not in the snapshot"),
    "path file": (edit("x.pth", "/tmp\n"), r"x.pth is not in the snapshot"),
    "link to folder": (add_link_to_folder, r"package is an extra link to a directory"),
    "entry points": (add_entry_points, r"entry_points.txt is not in the snapshot and declares entry points"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_of_the_tree_is_found_inside_and_outside(ready: Bench, name: str) -> None:
    mutate, message = MUTATIONS[name]
    mutate(ready.worktree)
    for root in (ready.worktree, None):
        with pytest.raises(VerificationError, match=message):
            load_and_verify(ready.manifest, root)


def test_other_files_are_no_problem_inside_and_are_one_outside(ready: Bench) -> None:
    (ready.worktree / "output.txt").write_text("x")
    load_and_verify(ready.manifest, ready.worktree)
    with pytest.raises(VerificationError, match=r"output.txt was added to .* and is not ignored; move it away"):
        load_and_verify(ready.manifest)
    (ready.worktree / "output.txt").rename(ready.worktree / "output.log")
    load_and_verify(ready.manifest)


def test_bytecode_of_the_tracked_sources_is_accepted_and_any_other_is_not(ready: Bench) -> None:
    source = ready.worktree / "pkg/core.py"
    for level in (0, 1, 2):
        py_compile.compile(str(source), optimize=level, doraise=True)
    load_and_verify(ready.manifest)
    forged = ready.folder / "forged.py"
    forged.write_text("def value():\n    return 666\n")
    os.utime(forged, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    cached = source.parent / "__pycache__" / f"core.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(forged), cfile=str(cached), dfile=str(source), doraise=True)
    for root in (ready.worktree, None):
        with pytest.raises(VerificationError, match=r"core\.\S*\.pyc does not hold the code of pkg/core.py"):
            load_and_verify(ready.manifest, root)
    cached.write_bytes(cached.read_bytes()[:20])
    with pytest.raises(VerificationError, match=r"does not hold the code"):
        load_and_verify(ready.manifest)
    cached.rename(cached.with_name("core.cpython-399.pyc"))
    with pytest.raises(VerificationError, match=r"bytecode for another interpreter"):
        load_and_verify(ready.manifest)


@pytest.mark.parametrize("name", ["source.patch", "source-changes.jsonl", "source-tree.jsonl", "snapshot_verify.py"])
def test_every_artifact_is_covered(ready: Bench, name: str) -> None:
    path = ready.folder / "result" / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    for root in (ready.worktree, None):
        with pytest.raises(VerificationError, match=rf"artifact {name} has sha256 \w+, the manifest says"):
            load_and_verify(ready.manifest, root)
    path.unlink()
    with pytest.raises(VerificationError, match=rf"artifact {name}: No such file"):
        load_and_verify(ready.manifest, ready.worktree)


def rewrite(bench: Bench, change: Callable[[dict[str, object]], object]) -> None:
    data = json.loads(bench.manifest.read_text())
    change(data)
    bench.manifest.write_text(json.dumps(data))


def test_a_moved_or_missing_ref_is_found(ready: Bench) -> None:
    ref, commit = "refs/vst/snapshots/run-1", ready.data()["snapshot"]["commit"]
    git(ready.repo, "update-ref", ref, "HEAD")
    with pytest.raises(VerificationError, match=rf"commit of {ref} is \w+, the manifest says {commit}"):
        load_and_verify(ready.manifest)
    git(ready.repo, "update-ref", "-d", ref)
    with pytest.raises(VerificationError, match=rf"{ref} is missing from .*, expected {commit}; restore it"):
        load_and_verify(ready.manifest)


@pytest.mark.parametrize("key", ["tree", "commit"])
def test_an_edited_manifest_does_not_agree_with_git(ready: Bench, key: str) -> None:
    rewrite(ready, lambda data: data["snapshot"].update({key: "0" * 40}))  # type: ignore[attr-defined]
    with pytest.raises(VerificationError, match=rf"{key} of refs/vst/snapshots/run-1 is"):
        load_and_verify(ready.manifest)


def test_a_patch_that_was_replaced_together_with_its_digest_is_found(ready: Bench) -> None:
    patch = ready.folder / "result/source.patch"
    patch.write_bytes(patch.read_bytes().replace(b"+data", b"+DATA"))
    digest, size = snapshot_verify.file_digest(str(patch))

    def repair(data: dict[str, object]) -> None:
        item = next(item for item in data["artifacts"] if item["role"] == "patch")  # type: ignore[attr-defined]
        item.update({"sha256": digest, "bytes": size})

    rewrite(ready, repair)
    with pytest.raises(VerificationError, match=r"the patch leads from \w+ to tree|patch does not apply"):
        load_and_verify(ready.manifest)


def test_a_listing_that_was_replaced_together_with_its_digest_is_found(ready: Bench) -> None:
    listing = ready.folder / "result/source-tree.jsonl"
    listing.write_bytes(b"".join(line for line in listing.read_bytes().splitlines(True) if b"run.sh" not in line))
    digest, size = snapshot_verify.file_digest(str(listing))

    def repair(data: dict[str, object]) -> None:
        item = next(item for item in data["artifacts"] if item["role"] == "tree")  # type: ignore[attr-defined]
        item.update({"sha256": digest, "bytes": size})

    rewrite(ready, repair)
    with pytest.raises(VerificationError, match=r"run.sh: the tree listing and the commit disagree"):
        load_and_verify(ready.manifest)


def test_a_worktree_that_moved_on_is_found(ready: Bench) -> None:
    git(ready.worktree, "checkout", "--quiet", "-b", "work")
    with pytest.raises(VerificationError, match=r"HEAD of .* is refs/heads/work, expected detached"):
        load_and_verify(ready.manifest)
    git(ready.worktree, "checkout", "--quiet", "--detach")
    git(ready.worktree, "rm", "--quiet", "--cached", "run.sh")
    with pytest.raises(VerificationError, match=r"holds staged changes"):
        load_and_verify(ready.manifest)
    shutil.rmtree(ready.worktree)
    with pytest.raises(VerificationError, match=r"the worktree .* is missing(?s:.*)worktree prune"):
        load_and_verify(ready.manifest)


def test_a_worktree_of_another_repository_in_its_place_is_found(ready: Bench) -> None:
    shutil.rmtree(ready.worktree)
    git(ready.folder, "clone", "--quiet", str(ready.repo), str(ready.worktree))
    with pytest.raises(VerificationError, match=r"somebody replaced the worktree"):
        load_and_verify(ready.manifest)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (None, ConfigError, "cannot read the manifest"),
        ("{", VerificationError, "is not JSON"),
        ("[]", VerificationError, "has schema 'list'"),
        ('{"schema": "other/9"}', VerificationError, r"has schema 'other/9', expected"),
        ('{"schema": "vst.source-manifest/1"}', VerificationError, "lacks run_id, snapshot, artifacts"),
    ],
)
def test_a_file_that_is_no_manifest(tmp_path: Path, text: str | None, error: type[Exception], message: str) -> None:
    path = tmp_path / "source-manifest.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=message):
        load_and_verify(path)


@pytest.mark.parametrize("name", ["../up.py", "/etc/passwd", "a//b", "a/./b", ""])
def test_a_listing_may_not_name_a_path_outside_the_root(tmp_path: Path, name: str) -> None:
    listing = tmp_path / "tree.jsonl"
    listing.write_text(json.dumps({"path": name, "type": "file"}) + "\n")
    with pytest.raises(snapshot_verify.Refused, match="is not a path below the root"):
        snapshot_verify.read_entries(str(listing))


def test_the_root_must_be_a_directory(ready: Bench) -> None:
    with pytest.raises(ConfigError, match=r"is not a directory; give the place where the snapshot is mounted"):
        load_and_verify(ready.manifest, ready.folder / "absent")


def isolated(ready: Bench, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """The copied file alone, in an interpreter without site-packages, without git in PATH."""
    alone = ready.folder / "alone"
    shutil.copytree(ready.folder / "result", alone, dirs_exist_ok=True)
    command = [python, "-I", "-S", "-B", str(alone / "snapshot_verify.py")]
    arguments = ["--manifest", str(alone / "source-manifest.json"), "--root", str(ready.worktree)]
    return subprocess.run(
        [*command, *arguments], cwd="/", env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )


def test_the_verifier_works_when_copied_alone(ready: Bench) -> None:
    done = isolated(ready)
    assert done.returncode == 0, done.stderr
    assert "verified: snapshot run-1" in done.stdout and "7 file(s)" in done.stdout
    (ready.worktree / "run.sh").write_text("changed")
    done = isolated(ready)
    assert done.returncode == 11 and "run.sh has sha256" in done.stderr and "Traceback" not in done.stderr


def test_the_verifier_is_the_module_of_the_package_and_needs_python_3_9_only(ready: Bench) -> None:
    module = Path(snapshot_verify.__file__)
    assert (ready.folder / "result/snapshot_verify.py").read_bytes() == module.read_bytes()
    tree = ast.parse(module.read_text(), feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {name.name if isinstance(node, ast.Import) else node.module for node in imports for name in node.names}
    assert {str(name).split(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_the_verifier_runs_in_the_oldest_interpreters_here(ready: Bench) -> None:
    names = ("python3.9", "python3.10", "python3")
    # Only the system's own: others on the path may be shims that need more of the environment.
    found = {path for name in names if (path := shutil.which(name, path="/usr/bin:/usr/local/bin"))} | {sys.executable}
    for python in found:
        done = isolated(ready, python)
        assert done.returncode == 0, (python, done.stderr)


def test_the_program_verifies_with_its_exit_codes(ready: Bench) -> None:
    for extra in ([], ["--root", ready.worktree]):
        done = run_tool("verify", "--manifest", ready.manifest, *extra)
        assert done.returncode == 0 and "verified: snapshot run-1" in done.stdout, done.stderr
    (ready.worktree / "run.sh").write_text("changed")
    for extra in ([], ["--root", ready.worktree]):
        assert run_tool("verify", "--manifest", ready.manifest, *extra).returncode == 11
    assert run_tool("verify", "--manifest", ready.folder / "absent.json").returncode == 2


def test_a_missing_repository_says_to_use_root(ready: Bench) -> None:
    shutil.rmtree(ready.repo)
    with pytest.raises(VerificationError, match=r"is not there; in a container without git give --root"):
        load_and_verify(ready.manifest)
    load_and_verify(ready.manifest, ready.worktree)
