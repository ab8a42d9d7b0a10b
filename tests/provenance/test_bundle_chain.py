"""A run that is pinned to a source snapshot, and what a bundle says of links that were changed since."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vst.oracle.record import Record
from vst.oracle.reference import Reference
from vst.provenance.links import use_reference
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.provenance.verify import verify
from vst.snapshot.prepare import Request as Snapshot
from vst.snapshot.prepare import prepare

from .conftest import Run, run_vst
from .stored_run import answer

Copied = Callable[[Run], Run]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a snapshot of a small repository with one uncommitted change."""
    root = tmp_path_factory.mktemp("snapshot")
    repo = root / "repo"
    (repo / "pkg").mkdir(parents=True)
    (repo / "pkg/__init__.py").write_text("A = 1\n")
    identity = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "first"]):
        subprocess.run([*identity, *command], cwd=repo, check=True)
    (repo / "pkg/__init__.py").write_text("A = 2\n")
    (root / "result").mkdir()
    return prepare(Snapshot(repo, "snap-1", root / "result", root / "trees"))


@pytest.fixture(scope="module")
def pinned(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("pinned") / "run"
    return run_vst(
        path, "lane=L0", f"snapshot.manifest={manifest}", "snapshot.imports=['pkg=pkg']", PYTHONPATH=tree(manifest)
    )


def tree(manifest: Path) -> str:
    return str(json.loads(manifest.read_bytes())["snapshot"]["worktree"])


def test_a_verified_snapshot_is_recorded_in_every_sidecar(pinned: Run, manifest: Path) -> None:
    assert pinned.code == 0, pinned.output
    expected = json.loads(manifest.read_bytes())["snapshot"]
    for sidecar in pinned.path.rglob("*.meta.json"):
        known = json.loads(sidecar.read_bytes())["predicate"]
        found = known["source"]["snapshot"]
        assert (found["id"], found["commit"], found["tree"]) == ("snap-1", expected["commit"], expected["tree"])
        assert known["chain"]["snapshot"] == {"manifest": str(manifest), "sha256": found["sha256"]}
    assert verify(pinned.path).lines()[1:] == []


def test_the_snapshot_is_the_first_check_and_warns_when_it_is_not_the_code_that_runs(pinned: Run) -> None:
    lane = pinned.json("verdict.json")["lanes"][0]
    assert (lane["lane"], [check["id"] for check in lane["checks"]]) == ("snapshot", ["snapshot.verified"])
    assert "does not pin the code of this run" in lane["checks"][0]["warnings"][0]
    assert pinned.predicate()["source"]["snapshot"]["runs_vst"] is False


def test_a_snapshot_whose_tree_was_changed_is_refused_before_anything_else(manifest: Path, tmp_path: Path) -> None:
    file = Path(tree(manifest)) / "pkg/__init__.py"
    before = file.read_bytes()
    file.write_bytes(b"A = 3\n")
    try:
        run = run_vst(tmp_path / "run", "lane=L0", f"snapshot.manifest={manifest}")
    finally:
        file.write_bytes(before)
    assert run.code == 11, run.output
    (lane,) = run.json("verdict.json")["lanes"]
    (check,) = lane["checks"]
    assert (check["id"], check["outcome"]) == ("snapshot.verified", "refused") and "pkg/__init__.py" in check["reason"]
    assert not list(run.path.glob("manifest-*.json")), "no checkpoint was looked at"
    assert verify(run.path).holds


def test_a_module_that_is_imported_from_elsewhere_is_refused(manifest: Path, tmp_path: Path) -> None:
    run = run_vst(tmp_path / "run", "lane=L0", f"snapshot.manifest={manifest}", "snapshot.imports=['vst=vst']")
    (check,) = run.json("verdict.json")["lanes"][0]["checks"]
    assert run.code == 11 and "module vst is imported from" in check["reason"]


def test_a_snapshot_is_verified_where_it_is_mounted_without_git(manifest: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    shutil.copytree(tree(manifest), mounted, ignore=shutil.ignore_patterns(".git"))
    options = (f"snapshot.manifest={manifest}", f"snapshot.root={mounted}")
    assert run_vst(tmp_path / "run", "lane=L0", *options).code == 0
    (mounted / "pkg/__init__.py").unlink()
    assert run_vst(tmp_path / "again", "lane=L0", *options).code == 11


def test_a_manifest_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    run = run_vst(tmp_path / "run", "lane=L0", f"snapshot.manifest={tmp_path / 'nothing.json'}")
    assert run.code == 2 and "cannot read the manifest" in run.json("run.json")["error"]["text"]
    alone = run_vst(tmp_path / "alone", "lane=L0", "snapshot.root=/src")
    assert alone.code == 2 and "set snapshot.manifest too" in alone.output


def test_a_manifest_that_was_changed_since_breaks_the_chain(manifest: Path, pinned: Run) -> None:
    before = manifest.read_bytes()
    manifest.write_bytes(before + b"\n")
    found = str(verify(pinned.path).findings[0])
    manifest.write_bytes(before)
    assert found.startswith("chain.snapshot:") and "the run used" in found
    patch = manifest.with_name("source.patch")
    content = patch.read_bytes()
    patch.write_bytes(content + b"\n")
    found = str(verify(pinned.path).findings[0])
    patch.write_bytes(content)
    assert found.startswith("chain.snapshot: artifact source.patch has sha256")


def test_a_run_that_was_followed_and_changed_since_breaks_the_chain(
    passing: Run, copied: Copied, tmp_path: Path
) -> None:
    previous = copied(passing)
    run = run_vst(tmp_path / "run", "lane=L0", f"provenance.previous={previous.path}")
    (previous.path / "run.json").write_text("{}\n")
    assert str(verify(run.path).findings[0]).startswith("chain.previous:")
    shutil.rmtree(previous.path)
    report = verify(run.path)
    assert report.holds and report.notes == [f"chain.previous: {previous.path} cannot be reached from here"]


# --- the reference ----------------------------------------------------------------------------------------------------


def judged_by(tmp_path: Path, origin: Path) -> RunDir:
    """A finished run that used the reference at ``origin``."""
    record = json.loads(origin.read_bytes())["record"]
    run = RunDir(tmp_path / "run", Request((), (), "sha256:" + "0" * 64))
    run.evidence.source = run.evidence.machine = {"unknown": {}}
    use_reference(run, {**record, "noise_floor": None}, origin)
    server = {"state": "unknown", "holds": "unknown", "left": "stopped"}
    verdict = {
        "verdict": "FAIL_CLOSED", "lane": "L3", "cause": "inconclusive", "exit_code": 12, "interrupted": False,
        "server": server, "lanes": [],
    }  # fmt: skip
    run.finish(verdict, {**verdict, "attempt": 1})
    return run


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    path = tmp_path / "reference.json"
    store(path, -1.0, "one")
    return path


def store(path: Path, value: float, instance: str) -> None:
    record = Record("B", "sha256:" + "1" * 64, (answer(value),))
    path.write_text(json.dumps(Reference(record, "blake3:b", {"instance_id": instance}, "here").to_json()))


def test_the_reference_of_a_run_is_in_its_bundle_and_followed_to_where_it_came_from(
    tmp_path: Path, origin: Path
) -> None:
    run = judged_by(tmp_path, origin)
    assert verify(run.path).lines()[1:] == []
    assert json.loads((run / "record-reference.json").read_bytes())["claim"] == "B"


def test_a_reference_that_answers_otherwise_now_breaks_the_chain(tmp_path: Path, origin: Path) -> None:
    run = judged_by(tmp_path, origin)
    store(origin, -2.0, "two")
    assert str(verify(run.path).findings[0]) == (
        f"chain.reference: {origin} is no longer the reference that the run used"
    )


def test_a_reference_that_was_taken_again_or_is_gone_is_a_note(tmp_path: Path, origin: Path) -> None:
    run = judged_by(tmp_path, origin)
    store(origin, -1.0, "two")
    report = verify(run.path)
    assert report.holds and "was written again since, with the same answers" in report.notes[0]
    origin.unlink()
    report = verify(run.path)
    assert report.holds and "cannot be reached from here" in report.notes[0]
