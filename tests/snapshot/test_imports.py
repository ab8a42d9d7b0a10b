"""``verify --import`` says where a module really comes from when something stands before the mounted tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from .conftest import Bench


@pytest.fixture
def mounted(bench: Bench) -> Bench:
    bench.prepare()
    return bench


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of its own, so that path files and hooks can be installed."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin/python"


def site_packages(python: Path) -> Path:
    return next(python.parents[1].glob("lib/python3*/site-packages"))


@pytest.fixture(autouse=True)
def _clean_site(python: Path) -> None:
    for path in site_packages(python).iterdir():
        if path.suffix in (".pth", ".py"):
            path.unlink()


def other_tree(folder: Path) -> Path:
    (folder / "other/pkg").mkdir(parents=True)
    (folder / "other/pkg/__init__.py").write_text("NAME = 'other'\n")
    (folder / "other/pkg/core.py").write_text("")
    return folder / "other"


def check(
    bench: Bench, python: Path, *imports: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    verifier = bench.folder / "result/snapshot_verify.py"
    requests = [word for item in imports for word in ("--import", item)]
    command = [str(python), "-B", str(verifier), "--manifest", str(bench.manifest), "--root", str(bench.worktree)]
    env = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        [*command, *requests], cwd=cwd or bench.worktree, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("place", ["pkg", ".", "pkg/__init__.py", "{root}", "{root}/pkg"])
def test_a_module_of_the_mounted_tree_is_accepted(mounted: Bench, python: Path, place: str) -> None:
    done = check(mounted, python, "pkg=" + place.format(root=mounted.worktree), "pkg.core=pkg/core.py", "pkg.core=.")
    assert done.returncode == 0 and "3 import(s)" in done.stdout, done.stderr


def test_a_pythonpath_entry_that_shadows_the_tree_is_found(mounted: Bench, python: Path, tmp_path: Path) -> None:
    other = other_tree(tmp_path)
    path = f"{other}:{mounted.worktree}"
    done = check(mounted, python, "pkg=pkg", cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 11
    assert f"module pkg is imported from {other}/pkg/__init__.py, expected {mounted.worktree}/pkg" in done.stderr
    assert f"sys.path[1] is '{other}', put there by PYTHONPATH; unset it or put the snapshot first" in done.stderr
    right = f"{mounted.worktree}:{other}"
    assert check(mounted, python, "pkg=pkg", cwd=tmp_path, PYTHONPATH=right).returncode == 0


def test_a_path_file_that_shadows_the_tree_is_found(mounted: Bench, python: Path, tmp_path: Path) -> None:
    other = other_tree(tmp_path)
    (site_packages(python) / "shadow.pth").write_text(f"{other}\n")
    done = check(mounted, python, "pkg=pkg", cwd=tmp_path)
    assert done.returncode == 11
    assert f"imported from {other}/pkg/__init__.py" in done.stderr
    assert f"put there by {site_packages(python)}/shadow.pth; remove that file" in done.stderr


def test_a_path_file_that_runs_code_and_imports_early_is_found(mounted: Bench, python: Path, tmp_path: Path) -> None:
    other = other_tree(tmp_path)
    (site_packages(python) / "early.pth").write_text(f"import sys; sys.path.insert(0, {str(other)!r}); import pkg\n")
    done = check(mounted, python, "pkg=pkg")
    assert done.returncode == 11
    assert "it was imported before the program started, by a .pth file" in done.stderr


def test_a_sitecustomize_that_imports_early_is_named(mounted: Bench, python: Path, tmp_path: Path) -> None:
    other = other_tree(tmp_path)
    code = f"import sys\nsys.path.insert(0, {str(other)!r})\nimport pkg\nsys.path.remove({str(other)!r})\n"
    (site_packages(python) / "sitecustomize.py").write_text(code)
    done = check(mounted, python, "pkg=pkg")
    assert done.returncode == 11 and "site-packages/sitecustomize.py; remove that" in done.stderr


def editable_install(python: Path, tree: Path, settings: dict[str, str]) -> None:
    """What ``pip install -e`` does, by setuptools alone, so that no package index is asked."""
    code = (
        "import setuptools.build_meta as b, zipfile; "
        f"name = b.build_editable({str(tree.parent)!r}, {settings!r}); "
        f"zipfile.ZipFile({str(tree.parent)!r} + '/' + name).extractall({str(site_packages(python))!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


EDITABLE = {
    "path file": ({"editable_mode": "compat"}, "pkg", r"put there by \S+__editable__.pkg-9.pth; remove that file"),
    "tree of links": ({"editable_mode": "strict"}, "pkg", r"put there by \S+__editable__.pkg-9.pth; remove that file"),
    "import hook": (
        {},
        "source",
        r"the import hook __editable___pkg_9_finder.\S+ \(an editable install\) answers first",
    ),
}


@pytest.mark.parametrize("kind", EDITABLE)
def test_an_editable_install_is_found(mounted: Bench, python: Path, tmp_path: Path, kind: str) -> None:
    settings, folder, reason = EDITABLE[kind]
    other = other_tree(tmp_path)
    if folder != "pkg":
        (other / "pkg").rename(other / folder)
    arguments = f"name='pkg', version='9', packages=['pkg'], package_dir={{'pkg': {folder!r}}}"
    (other / "setup.py").write_text(f"from setuptools import setup\nsetup({arguments})\n")
    editable_install(python, other, settings)
    done = check(mounted, python, "pkg=pkg", cwd=tmp_path)
    assert done.returncode == 11
    assert f"module pkg is imported from {other / folder}/__init__.py, expected" in done.stderr
    assert re.search(reason, done.stderr), done.stderr


def test_an_installed_copy_is_found_when_nothing_puts_the_tree_first(
    mounted: Bench, python: Path, tmp_path: Path
) -> None:
    (site_packages(python) / "lonely.py").write_text("LONELY = 1\n")
    done = check(mounted, python, "lonely=lonely.py", cwd=tmp_path)
    assert done.returncode == 11 and "site-packages/lonely.py, expected" in done.stderr
    assert "start from the root of the snapshot or put it first" in done.stderr


def test_a_module_that_is_nowhere_or_fails_is_refused(mounted: Bench, python: Path, tmp_path: Path) -> None:
    done = check(mounted, python, "pkg=pkg", cwd=tmp_path)
    assert done.returncode == 11 and "module pkg cannot be imported: ModuleNotFoundError" in done.stderr
    (tmp_path / "dies.py").write_text("import os\nos._exit(3)\n")
    done = check(mounted, python, "dies=dies.py", cwd=tmp_path)
    assert done.returncode == 11 and "the interpreter ended (exit 3) while importing dies" in done.stderr


@pytest.mark.parametrize("request_text", ["pkg", "=x", "pkg=", "a-b=x", "a..b=x"])
def test_a_request_must_be_module_and_path(mounted: Bench, python: Path, request_text: str) -> None:
    done = check(mounted, python, request_text)
    assert done.returncode == 2 and "is not MODULE=PATH" in done.stderr


def test_a_package_path_with_a_second_portion_is_found(mounted: Bench, python: Path, tmp_path: Path) -> None:
    other = other_tree(tmp_path)
    code = f"import pkg\npkg.__path__.insert(0, {str(other / 'pkg')!r})\n"
    (site_packages(python) / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(mounted.worktree)!r})\n" + code
    )
    done = check(mounted, python, "pkg=pkg")
    assert done.returncode == 11 and f"module pkg is imported from {other}/pkg, expected" in done.stderr


def test_forged_bytecode_outside_the_tree_is_found(mounted: Bench, python: Path, tmp_path: Path) -> None:
    source, forged = mounted.worktree / "pkg/core.py", tmp_path / "forged.py"
    forged.write_text("def value():\n    return 666\n")
    stamp = source.stat()
    os.utime(forged, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    code = (
        "import importlib.util as u, py_compile, sys; "
        f"py_compile.compile({str(forged)!r}, u.cache_from_source({str(source)!r}), {str(source)!r}, doraise=True)"
    )
    environment = {"PYTHONPYCACHEPREFIX": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}
    subprocess.run([str(python), "-c", code], env=environment, check=True)
    done = check(mounted, python, "pkg.core=pkg/core.py", PYTHONPYCACHEPREFIX=str(tmp_path / "cache"))
    assert done.returncode == 11 and "which does not hold the code of" in done.stderr
