"""Repositories that are no plain clone: each is captured faithfully or refused with a reason, none is changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from vst.errors import VerificationError
from vst.snapshot import load_and_verify

from .conftest import Bench, commit_all, git, make_repo, picture

ODD_NAMES = [
    b"with space.py", b"'single'.txt", b'"double".txt', b"tab\there.txt", b"new\nline.txt", b"back\\slash.txt",
    b"-dash.txt", b"$(touch x).txt", b"`tick`.txt", b" lead and trail ", b"star*?[a].txt", b"\xff\xfe not text.py",
    "gr\u00fc\u00dfe \u2603.txt".encode(), b"semi;colon&amp", b"trailing newline\n", b"#hash", b"~tilde", b"%percent%s",
]  # fmt: skip


def write_odd_names(repo: Path) -> None:
    folder = os.fsencode(repo) + b"/odd dir\nwith newline"
    os.mkdir(folder)
    for name in ODD_NAMES:
        with open(folder + b"/" + name, "wb") as handle:
            handle.write(b"content of " + name)
    os.symlink(b"\xfe target\n", folder + b"/link \xfe")


def test_odd_names_survive_every_step(bench: Bench) -> None:
    write_odd_names(bench.repo)
    before = picture(bench.repo)
    bench.prepare(include_untracked=("odd dir\nwith newline",))
    assert picture(bench.repo) == before
    entries = bench.entries()
    for name in ODD_NAMES:
        path = b"odd dir\nwith newline/" + name
        assert entries[path].kind == "file"
        assert (bench.worktree / os.fsdecode(path)).read_bytes() == b"content of " + name
    assert entries[b"odd dir\nwith newline/link \xfe"].target == b"\xfe target\n"
    bench.manifest.read_text(encoding="ascii")
    load_and_verify(bench.manifest)
    load_and_verify(bench.manifest, bench.worktree)


def test_refusal_lists_odd_untracked_names_on_one_line_each(bench: Bench) -> None:
    write_odd_names(bench.repo)
    with pytest.raises(VerificationError) as caught:
        bench.prepare()
    assert r"odd dir\nwith newline/new\nline.txt" in str(caught.value)
    assert r"\\xff\\xfe not text.py" in str(caught.value)


def with_submodule(bench: Bench) -> Path:
    inner = make_repo(bench.folder / "inner")
    library = make_repo(bench.folder / "library")
    git(library, "submodule", "--quiet", "add", str(inner), "deep er/inner")
    commit_all(library, "with inner")
    git(bench.repo, "submodule", "--quiet", "add", str(library), "lib")
    git(bench.repo, "submodule", "--quiet", "update", "--init", "--recursive")
    commit_all(bench.repo, "with library")
    return bench.repo / "lib"


def test_submodules_are_recorded_and_laid_out_at_their_commit(bench: Bench) -> None:
    library = with_submodule(bench)
    before = picture(bench.repo)
    bench.prepare()
    assert picture(bench.repo) == before
    modules = {item["path"]: item for item in bench.data()["submodules"]}
    assert modules["lib"]["commit"] == git(library, "rev-parse", "HEAD") and modules["lib"]["populated"]
    assert set(modules) == {"lib", "lib/deep er/inner"}
    assert (bench.worktree / "lib/pkg/core.py").exists() and (bench.worktree / "lib/deep er/inner/run.sh").exists()
    assert git(bench.worktree, "status", "--porcelain") == ""
    load_and_verify(bench.manifest)
    (bench.worktree / "lib/pkg/core.py").write_text("CHANGED = 1\n")
    with pytest.raises(VerificationError, match=r"lib/pkg/core.py has sha256"):
        load_and_verify(bench.manifest)


def test_a_submodule_that_moved_is_captured_at_its_present_commit(bench: Bench) -> None:
    library = with_submodule(bench)
    (library / "pkg/core.py").write_text("MOVED = 1\n")
    git(library, "add", "pkg/core.py")
    git(library, "commit", "--quiet", "-m", "moved")
    bench.prepare()
    assert bench.data()["submodules"][0]["commit"] == git(library, "rev-parse", "HEAD")
    assert (bench.worktree / "lib/pkg/core.py").read_text() == "MOVED = 1\n"
    load_and_verify(bench.manifest)


@pytest.mark.parametrize("place", ["pkg/core.py", "untracked.py", "deep er/inner/run.sh"])
def test_a_submodule_with_changes_is_refused(bench: Bench, place: str) -> None:
    library = with_submodule(bench)
    (library / place).write_text("DIRTY = 1\n")
    with pytest.raises(VerificationError, match=r"submodule .*has changes that no commit holds(?s:.*)commit them"):
        bench.prepare()


def test_a_submodule_that_was_never_initialised_stays_empty(bench: Bench) -> None:
    with_submodule(bench)
    clone = bench.folder / "clone"
    git(bench.folder, "clone", "--quiet", str(bench.repo), str(clone))
    bench.prepare(repo=clone)
    assert bench.data()["submodules"] == [
        {"path": "lib", "commit": git(bench.repo / "lib", "rev-parse", "HEAD"), "populated": False}
    ]
    assert list((bench.worktree / "lib").iterdir()) == []
    load_and_verify(bench.manifest)


def test_a_deleted_submodule_is_captured_as_deleted(bench: Bench) -> None:
    shutil.rmtree(with_submodule(bench))
    bench.prepare()
    assert b"lib" not in bench.entries() and bench.entries("changes")[b"lib"].kind == "deleted"


@pytest.mark.parametrize("commits", [0, 1])
def test_a_nested_repository_stops_it_named_or_not(bench: Bench, commits: int) -> None:
    nested = bench.repo / "vendor" / "nested"
    nested.mkdir(parents=True)
    git(nested, "init", "--quiet")
    (nested / "file.py").write_text("NESTED = 1\n")
    if commits:
        commit_all(nested, "nested")
    with pytest.raises(VerificationError, match=r"untracked path\(s\)(?s:.*)vendor/nested/(?s:.*)nested repository"):
        bench.prepare()
    with pytest.raises(VerificationError, match=r"nested repository cannot be included(?s:.*)submodule"):
        bench.prepare(include_untracked=("vendor",))


def test_lfs_pointers_are_kept_and_counted(bench: Bench) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'b' * 64}\nsize 12345\n"
    (bench.repo / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (bench.repo / "weights.bin").write_text(pointer)
    commit_all(bench.repo, "pointer")
    bench.prepare()
    assert (bench.worktree / "weights.bin").read_text() == pointer
    assert bench.data()["lfs_pointers"] == [{"path": "weights.bin"}]
    load_and_verify(bench.manifest)


def test_configured_filters_decide_the_blob_and_are_named(bench: Bench) -> None:
    git(bench.repo, "config", "filter.shout.clean", "tr a-z A-Z")
    git(bench.repo, "config", "filter.shout.smudge", "tr A-Z a-z")
    git(bench.repo, "config", "filter.shout.required", "true")
    (bench.repo / ".gitattributes").write_text("*.loud filter=shout\n")
    (bench.repo / "a.loud").write_text("quiet\n")
    commit_all(bench.repo, "filtered")
    (bench.repo / "a.loud").write_text("edited\n")
    before = picture(bench.repo)
    bench.prepare()
    assert picture(bench.repo) == before
    commit = bench.data()["snapshot"]["commit"]
    assert git(bench.repo, "cat-file", "blob", f"{commit}:a.loud") == "EDITED"
    assert (bench.worktree / "a.loud").read_text() == "edited\n"
    assert bench.data()["filters"] == [{"name": "shout", "files": 1}]
    load_and_verify(bench.manifest)


def test_a_required_filter_that_fails_stops_it_and_leaves_nothing(bench: Bench) -> None:
    (bench.repo / ".gitattributes").write_text("*.loud filter=shout\n")
    (bench.repo / "a.loud").write_text("quiet\n")
    commit_all(bench.repo, "plain")
    git(bench.repo, "config", "filter.shout.clean", "cat")
    git(bench.repo, "config", "filter.shout.smudge", "false")
    git(bench.repo, "config", "filter.shout.required", "true")
    with pytest.raises(VerificationError, match=r"could not be checked out(?s:.*)filter"):
        bench.prepare()
    assert sorted(path.name for path in bench.folder.iterdir()) == ["repo"]
    assert len(git(bench.repo, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("autocrlf", ["true", "input", "false"])
def test_line_endings_follow_the_configuration(bench: Bench, autocrlf: str) -> None:
    (bench.repo / ".gitattributes").write_text("*.bat text eol=crlf\n*.raw -text\n")
    (bench.repo / "run.bat").write_bytes(b"echo\r\n")
    (bench.repo / "keep.raw").write_bytes(b"one\r\ntwo\n")
    (bench.repo / "plain.txt").write_bytes(b"one\ntwo\n")
    commit_all(bench.repo, "endings")
    git(bench.repo, "config", "core.autocrlf", autocrlf)
    (bench.repo / "plain.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    before = picture(bench.repo)
    bench.prepare()
    assert picture(bench.repo) == before
    commit = bench.data()["snapshot"]["commit"]
    stored = git(bench.repo, "cat-file", "blob", f"{commit}:plain.txt")
    assert ("\r" in stored) == (autocrlf == "false")
    assert (bench.worktree / "run.bat").read_bytes() == b"echo\r\n"
    assert (bench.worktree / "keep.raw").read_bytes() == b"one\r\ntwo\n"
    assert (b"\r" in (bench.worktree / "plain.txt").read_bytes()) == (autocrlf != "input")
    load_and_verify(bench.manifest)
    load_and_verify(bench.manifest, bench.worktree)


@pytest.mark.parametrize("index", ["--no-sparse-index", "--sparse-index"])
def test_a_sparse_checkout_gives_the_whole_tree(bench: Bench, index: str) -> None:
    (bench.repo / "docs").mkdir()
    (bench.repo / "docs/page.txt").write_text("page\n")
    commit_all(bench.repo, "docs")
    git(bench.repo, "sparse-checkout", "set", "--cone", index, "pkg")
    assert not (bench.repo / "docs").exists()
    (bench.repo / "pkg/core.py").write_text("SPARSE = 1\n")
    before = picture(bench.repo)
    bench.prepare()
    assert picture(bench.repo) == before
    assert (bench.worktree / "docs/page.txt").read_text() == "page\n"
    assert (bench.worktree / "pkg/core.py").read_text() == "SPARSE = 1\n"
    assert bench.data()["repository"]["sparse"]
    assert list(bench.entries("changes")) == [b"pkg/core.py"]
    assert git(bench.worktree, "status", "--porcelain") == ""
    load_and_verify(bench.manifest)


def conflicting(repo: Path, how: str) -> None:
    git(repo, "checkout", "--quiet", "-b", "side")
    (repo / "pkg/core.py").write_text("SIDE = 1\n")
    commit_all(repo, "side")
    git(repo, "checkout", "--quiet", "main")
    (repo / "pkg/core.py").write_text("MAIN = 1\n")
    commit_all(repo, "main")
    git(repo, how, "side", check=False)


@pytest.mark.parametrize("how", ["merge", "rebase", "cherry-pick"])
def test_unresolved_conflicts_are_refused_with_what_to_do(bench: Bench, how: str) -> None:
    conflicting(bench.repo, how)
    before = picture(bench.repo)
    expected = (
        rf"1 path\(s\) are unmerged in the middle of a {how}(?s:.*)pkg/core.py(?s:.*)git add(?s:.*)git {how} --abort"
    )
    with pytest.raises(VerificationError, match=expected):
        bench.prepare()
    assert picture(bench.repo) == before


@pytest.mark.parametrize("how", ["merge", "rebase", "cherry-pick"])
def test_a_resolved_operation_is_captured_and_recorded(bench: Bench, how: str) -> None:
    conflicting(bench.repo, how)
    (bench.repo / "pkg/core.py").write_text("BOTH = 1\n")
    git(bench.repo, "add", "pkg/core.py")
    before = picture(bench.repo)
    bench.prepare()
    assert picture(bench.repo) == before
    data = bench.data()
    assert data["repository"]["operation"]["name"] == how
    if how != "rebase":
        assert data["repository"]["operation"]["commits"] == [git(bench.repo, "rev-parse", "side")]
    assert git(bench.repo, "rev-parse", f"{data['snapshot']['commit']}^@") == data["head"]
    assert (bench.worktree / "pkg/core.py").read_text() == "BOTH = 1\n"
    load_and_verify(bench.manifest)


def test_a_shallow_clone_works_and_says_so_when_history_is_missing(bench: Bench) -> None:
    clone = bench.folder / "clone"
    old = git(bench.repo, "rev-parse", "HEAD^")
    git(bench.folder, "clone", "--quiet", "--depth=1", f"file://{bench.repo}", str(clone))
    (clone / "pkg/core.py").write_text("SHALLOW = 1\n")
    before = picture(clone)
    bench.prepare(repo=clone)
    assert picture(clone) == before and bench.data()["repository"]["shallow"]
    load_and_verify(bench.manifest)
    with pytest.raises(Exception, match=r"not a commit(?s:.*)shallow(?s:.*)--deepen"):
        bench.prepare(repo=clone, run_id="run-2", result_dir=bench.folder / "other", base=old)


def test_a_sha256_repository_works(bench_with: Callable[..., Bench]) -> None:
    bench = bench_with("--object-format=sha256")
    (bench.repo / "pkg/core.py").write_text("LONG = 1\n")
    before = picture(bench.repo)
    bench.prepare()
    assert picture(bench.repo) == before
    assert bench.data()["repository"]["object_format"] == "sha256" and len(bench.data()["snapshot"]["commit"]) == 64
    load_and_verify(bench.manifest)


def test_a_split_index_and_an_untracked_cache_are_left_alone(bench: Bench) -> None:
    git(bench.repo, "config", "core.untrackedCache", "true")
    git(bench.repo, "update-index", "--split-index")
    git(bench.repo, "update-index", "--untracked-cache")
    git(bench.repo, "status")
    (bench.repo / "pkg/core.py").write_text("SPLIT = 1\n")
    shared = {path.name: path.read_bytes() for path in (bench.repo / ".git").glob("sharedindex.*")}
    before = picture(bench.repo)
    bench.prepare()
    assert picture(bench.repo) == before
    assert shared == {path.name: path.read_bytes() for path in (bench.repo / ".git").glob("sharedindex.*")}
    load_and_verify(bench.manifest)


def test_file_mode_off_keeps_the_recorded_mode(bench: Bench) -> None:
    git(bench.repo, "config", "core.fileMode", "false")
    (bench.repo / "run.sh").chmod(0o755)
    bench.prepare()
    assert bench.entries()[b"run.sh"].mode == "100644"
    load_and_verify(bench.manifest)


def test_a_partial_clone_contacts_no_remote(bench: Bench) -> None:
    clone = bench.folder / "clone"
    git(bench.repo, "config", "uploadpack.allowFilter", "true")
    git(bench.folder, "clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{bench.repo}", str(clone))
    git(clone, "sparse-checkout", "set", "--no-cone", "/run.sh")
    git(clone, "checkout", "--quiet", "main")
    before = git(clone, "count-objects", "-v")
    with pytest.raises(VerificationError, match=r"could not be checked out(?s:.*)may not contact a remote"):
        bench.prepare(repo=clone)
    assert git(clone, "count-objects", "-v") == before


def test_a_repository_whose_path_has_a_colon_works(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_repo(tmp_path / 'a:b "c'))
    (bench.repo / "pkg/core.py").write_text("COLON = 1\n")
    bench.prepare()
    load_and_verify(bench.manifest)
