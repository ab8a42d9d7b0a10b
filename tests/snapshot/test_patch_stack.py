"""A patch stack is the exact first-parent history between base and HEAD, and is locked to full commits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vst.errors import ConfigError, VerificationError

from .conftest import Bench, commit_all, git


@pytest.fixture
def stacked(bench: Bench) -> tuple[Bench, str, list[str]]:
    """Three patches on a base, the second a merge of a side branch."""
    base = git(bench.repo, "rev-parse", "HEAD")
    (bench.repo / "one.py").write_text("ONE = 1\n")
    first = commit_all(bench.repo, "one")
    git(bench.repo, "checkout", "--quiet", "-b", "side", base)
    (bench.repo / "side.py").write_text("SIDE = 1\n")
    commit_all(bench.repo, "side")
    git(bench.repo, "checkout", "--quiet", "main")
    git(bench.repo, "merge", "--quiet", "--no-ff", "-m", "merge side", "side")
    second = git(bench.repo, "rev-parse", "HEAD")
    (bench.repo / "three.py").write_text("THREE = 1\n")
    return bench, base, [first, second, commit_all(bench.repo, "three")]


def write(bench: Bench, base: str, patches: list[str]) -> Path:
    path = bench.folder / "stack.yaml"
    lines = "".join(f"  - {{name: patch-{number}, commit: {patch}}}\n" for number, patch in enumerate(patches))
    path.write_text(f"base: {base}\npatches:\n{lines}" if patches else f"base: {base}\npatches: []\n")
    return path


def test_a_stack_is_locked_to_full_commits(stacked: tuple[Bench, str, list[str]]) -> None:
    bench, base, patches = stacked
    bench.prepare(patch_stack=write(bench, base[:9], [patch[:9] for patch in patches]))
    lock = json.loads((bench.folder / "result/patch-stack.lock.json").read_text())
    assert [patch["commit"] for patch in lock["patches"]] == patches
    assert [patch["subject"] for patch in lock["patches"]] == ["one", "merge side", "three"]
    assert lock["base"] == base == bench.data()["base"]
    assert "patch-stack" in [item["role"] for item in bench.data()["artifacts"]]


def test_every_deviation_from_history_is_named(stacked: tuple[Bench, str, list[str]]) -> None:
    bench, base, patches = stacked
    side = git(bench.repo, "rev-parse", "side")
    cases = [
        (base, patches[:2], r"1 commit\(s\) on HEAD are not in the patch stack(?s:.*)" + patches[2]),
        (base, patches[1:], rf"patch patch-0 .* stands at place 1, history has {patches[0]} there"),
        (base, [patches[1], patches[0], patches[2]], r"a patch is missing before it or the order is wrong"),
        (base, [patches[0], side, patches[2]], r"patch-1 .* is not a first-parent commit between base and HEAD"),
        (side, patches, r"base .* is not on the first-parent history"),
    ]
    for start, names, message in cases:
        with pytest.raises(VerificationError, match=message):
            bench.prepare(patch_stack=write(bench, start, names))
    assert not (bench.folder / "result").exists() and not (bench.folder / "worktrees").exists()


def test_a_base_that_differs_from_the_stack_is_wrong_usage(stacked: tuple[Bench, str, list[str]]) -> None:
    bench, base, patches = stacked
    with pytest.raises(ConfigError, match=r"the patch stack's base is"):
        bench.prepare(base=patches[0], patch_stack=write(bench, base, patches))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: [1", "is not YAML"),
        ("base: abc\n", "exactly the keys base"),
        ("base: abc\npatches: []\nextra: 1\n", "exactly the keys base"),
        ("base: HEAD\npatches: [{name: x}]\n", "must be a commit or have the keys"),
        ("base: HEAD\npatches: abc\n", "must be a list"),
        ("base: 1234567\npatches: []\n", r"base '1234567' is not a commit"),
    ],
)
def test_a_file_that_is_no_patch_stack_is_wrong_usage(bench: Bench, text: str, message: str) -> None:
    (bench.folder / "stack.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        bench.prepare(patch_stack=bench.folder / "stack.yaml")


def test_a_missing_file_is_wrong_usage(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="cannot read the patch stack"):
        bench.prepare(patch_stack=bench.folder / "absent.yaml")
