"""What the blocks of a sidecar say, and that nothing unknown goes without a reason."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import vst
from vst.provenance.block import Block, unexplained
from vst.provenance.imports import library_facts, package_digest, package_facts
from vst.provenance.inputs import inputs_block
from vst.provenance.machine import gpu_facts, machine_facts, read_gpus
from vst.provenance.predicate import BLOCKS
from vst.provenance.redaction import Scrubber
from vst.provenance.runtime import runtime_facts
from vst.provenance.source import GIT_KEYS, _git_facts
from vst.provenance.verify import verify
from vst.snapshot.git import Git

from .conftest import Run, run_vst


@pytest.mark.parametrize("kind", ["passing", "failing", "terminated", "killed"])
def test_every_sidecar_has_all_blocks_and_a_reason_for_every_null(kind: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(kind)
    sidecars = sorted(run.path.rglob("*.meta.json"))
    assert len(sidecars) >= 6
    for sidecar in sidecars:
        statement = json.loads(sidecar.read_bytes())
        assert statement["_type"] == "https://in-toto.io/Statement/v1"
        assert set(statement["predicate"]) == {*BLOCKS, "unknown"}
        assert list(unexplained(statement["predicate"])) == []


def test_a_sidecar_says_what_was_asked_what_was_read_and_how_it_ended(failing: Run) -> None:
    known = failing.predicate("manifest-model.json")
    assert known["request"]["overrides"][:2] == ["lane=L0", "model=local"]
    assert known["verdict"]["checks"]["L0"]["files.format"] == "refused"
    assert known["inputs"]["checkpoint"] is None and "refused" in known["inputs"]["unknown"]["checkpoint"]
    assert known["inputs"]["model"]["shards"][0]["sha256"] is None, "nothing was hashed: the audit stopped before"
    assert set(known["inputs"]["model"]["tokenizer"]) == {"tokenizer.json", "tokenizer_config.json"}
    assert known["outcome"]["exit_code"] == 11 and known["outcome"]["attempt"] == 1
    chosen = {one["key"]: one["value"] for one in known["defaults"]}
    assert chosen["server"] == "cpu" and "model" not in chosen and "lane" not in chosen


def test_values_that_the_run_filled_in_are_named_with_their_origin(passing: Run) -> None:
    filled = {one["key"]: one["from"] for one in passing.predicate()["defaults"]}
    assert filled["model.path"] == filled["checkpoint.path"] == "model.generate=tiny"


def test_every_file_of_a_run_has_a_sidecar_about_itself(passing: Run) -> None:
    for path in passing.path.rglob("*"):
        if path.is_file() and not path.name.endswith(".meta.json"):
            (subject,) = json.loads(path.with_name(path.name + ".meta.json").read_bytes())["subject"]
            assert subject["name"] == str(path.relative_to(passing.path))
            assert subject["digest"] == {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_null_is_explained_only_by_the_block_that_it_stands_in() -> None:
    inner = Block().put("b", None, "why").to_json()
    assert list(unexplained({"a": inner, "c": [inner, {"d": None}], "e": None, "unknown": {"e": "known"}})) == ["c.1.d"]


# --- source -----------------------------------------------------------------------------------------------------------


def git(repo: Path, *args: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    done = subprocess.run(["git", *identity, *args], cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one package, committed."""
    path = tmp_path / "repo"
    (path / "pkg").mkdir(parents=True)
    (path / "pkg/__init__.py").write_text("A = 1\n")
    git(path, "init", "--quiet")
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "-m", "first")
    git(path, "remote", "add", "origin", "https://me:pass-word@host.example/x.git")
    return path


def test_a_clean_checkout_is_named_by_commit_and_tree(repo: Path) -> None:
    found = _git_facts(Git(repo / "pkg"), repo / "pkg/__init__.py", Scrubber())
    assert found == {
        "repository": str(repo),
        "remote": "https://***@host.example/x.git",
        "commit": git(repo, "rev-parse", "HEAD"),
        "tree": git(repo, "rev-parse", "HEAD^{tree}"),
        "dirty": False,
        "patch": None,
        "untracked": 0,
    }
    assert tuple(found) == GIT_KEYS


def test_a_dirty_checkout_is_dirty_with_the_digest_of_its_patch_and_is_not_touched(repo: Path) -> None:
    (repo / "pkg/__init__.py").write_text("A = 2\n")
    (repo / "new.py").write_text("")
    index = (repo / ".git/index").read_bytes()
    found = _git_facts(Git(repo / "pkg"), repo / "pkg/__init__.py", Scrubber())
    patch = git(repo, "diff", "--binary", "--full-index", "HEAD") + "\n"
    assert found["dirty"] is True and found["untracked"] == 1
    assert found["patch"] == "sha256:" + hashlib.sha256(patch.encode()).hexdigest()
    assert (repo / ".git/index").read_bytes() == index


def test_a_package_that_git_does_not_track_has_no_commit_and_says_why(passing: Run, tmp_path: Path) -> None:
    """As installed from a wheel into an environment that lies inside of some repository."""
    site = tmp_path / "repo" / "site"
    site.mkdir(parents=True)
    subprocess.run(["cp", "-r", str(Path(vst.__file__).parent), str(site)], check=True)
    git(tmp_path / "repo", "init", "--quiet")
    program = (
        f"import sys, json; sys.path.insert(0, {str(site)!r}); from vst.provenance.source import source_facts; "
        "from vst.provenance.redaction import Scrubber; print(json.dumps(source_facts(Scrubber())))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["vst"]["path"] == str(site / "vst/__init__.py")
    assert found["commit"] is None and found["dirty"] is None
    assert found["unknown"]["commit"].startswith(f"{site}/vst is not tracked by a git worktree")


def test_the_digest_of_a_package_covers_names_bytes_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "__init__.py").write_text("A = 1\n")
    (tmp_path / "sub/lib.so").write_bytes(b"1234")
    seen = {package_digest(tmp_path)}
    (tmp_path / "__init__.py").write_text("A = 2\n")
    seen.add(package_digest(tmp_path))
    (tmp_path / "sub/lib.so").write_bytes(b"12345")
    seen.add(package_digest(tmp_path))
    (tmp_path / "sub/lib.so").rename(tmp_path / "sub/bil.so")
    seen.add(package_digest(tmp_path))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/x.pyc").write_bytes(b"1")
    seen.add(package_digest(tmp_path))
    assert len(seen) == 4, "compiled files do not count, everything else does"


def test_a_process_reports_what_it_imported_and_not_what_it_did_not() -> None:
    facts = library_facts()
    found = package_facts("vst")
    assert found is not None and facts["imports"]["vst"] == found
    assert found["path"] == vst.__file__ and package_facts("no_such_package") is None


# --- machine and runtime ----------------------------------------------------------------------------------------------


def test_gpus_are_read_from_nvidia_smi() -> None:
    text = "0, NVIDIA H200, GPU-5a1b, 143771, 570.86.15\n1, NVIDIA H200, GPU-77, [N/A], 570.86.15\n"
    first, second = read_gpus(text)
    assert first == {
        "index": "0", "name": "NVIDIA H200", "uuid": "GPU-5a1b", "driver": "570.86.15",
        "memory_bytes": 143771 << 20, "unknown": {},
    }  # fmt: skip
    assert second["memory_bytes"] is None and second["unknown"]["memory_bytes"] == "nvidia-smi says [N/A]"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "there is no nvidia-smi"),
        ("echo 'No devices were found' >&2; exit 6", "nvidia-smi ended with 6: No devices were found"),
    ],
)
def test_no_gpus_come_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, reason: str
) -> None:
    if program is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if program else str(tmp_path))
    assert gpu_facts() == (None, reason)


def test_a_machine_is_described_with_its_gpus_and_the_ids_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, NVIDIA H200, GPU-1, 143771, 570.1'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    slurm = {"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_PARTITION": "gpu", "SLURM_STEP_ID": "0"}
    found = machine_facts(slurm)
    assert found["gpus"][0]["uuid"] == "GPU-1" and found["memory_bytes"] > 0 and found["cpu"]["usable"] >= 1
    assert {key: found["slurm"][key] for key in ("job", "cluster", "partition", "step", "array_job")} == {
        "job": "17", "cluster": "c", "partition": "gpu", "step": "0", "array_job": None,
    }  # fmt: skip
    assert found["slurm"]["unknown"]["array_job"] == "SLURM_ARRAY_JOB_ID is not set"
    assert list(unexplained(found)) == []
    runtime = runtime_facts({}, Scrubber(), None, [], "sha256:1", found["gpus"])
    assert (runtime["driver"], runtime["image"]) == ("570.1", "sha256:1") and list(unexplained(runtime)) == []


def test_what_the_publisher_reports_is_what_runtime_says_of_torch_and_vllm() -> None:
    libraries = {"vllm": "0.32.0", "torch": "2.13.0+cpu", "python": "3.11.7", "cuda": None, "nccl": None}
    runtime = runtime_facts({}, Scrubber(), libraries, [], None, None)
    assert runtime["publisher"]["vllm"] == "0.32.0" and runtime["publisher"]["cuda"] is None
    assert runtime["publisher"]["unknown"]["cuda"] == "torch 2.13.0+cpu was built without CUDA"
    assert list(unexplained(runtime)) == []


def test_inputs_name_tokenizer_and_template_and_say_what_is_missing() -> None:
    files = {"config.json": "sha256:1", "tokenizer.json": "sha256:2", "chat_template.jinja": "sha256:3"}
    block = inputs_block({"model": {"files": files, "declared_revision": None}, "dataset": {"digest": "sha256:4"}})
    assert block["model"]["tokenizer"] == {"tokenizer.json": "sha256:2"}
    assert block["model"]["chat_template"] == {"chat_template.jinja": "sha256:3"}
    assert block["model"]["unknown"]["declared_revision"] == "not declared: model.revision"
    assert block["dataset"] == {"digest": "sha256:4"} and list(unexplained(block)) == []


# --- other runs -------------------------------------------------------------------------------------------------------


def test_a_run_directory_is_never_used_twice(passing: Run) -> None:
    before = (passing.path / "run.json").read_bytes()
    again = run_vst(passing.path, "lane=L0")
    assert again.code == 2 and "already holds a run" in again.output
    assert (passing.path / "run.json").read_bytes() == before and verify(passing.path).holds


def test_a_run_names_the_run_that_it_follows(passing: Run, tmp_path: Path) -> None:
    run = run_vst(tmp_path / "run", "lane=L0", f"provenance.previous={passing.path}")
    link = run.predicate()["chain"]["previous"]
    assert link["sha256"] == hashlib.sha256((passing.path / "run.json").read_bytes()).hexdigest()
    assert verify(run.path).holds
    wrong = run_vst(tmp_path / "other", "lane=L0", f"provenance.previous={tmp_path}")
    assert wrong.code == 2 and "is not the directory of a run" in wrong.json("run.json")["error"]["text"]
    assert verify(wrong.path).holds
