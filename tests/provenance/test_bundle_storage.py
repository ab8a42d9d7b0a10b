"""A disk that is full ends a run with a clear message, and what was written until then can be read and verified."""

from __future__ import annotations

import errno
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vst.checkpoint.tiny import make_tiny_pair
from vst.errors import TransportError
from vst.provenance.atomic import StorageFailure, write_atomic
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.provenance.verify import verify

from .conftest import DEADLINE_S, command

REQUEST = Request(("vst",), (), "sha256:" + "0" * 64)


@pytest.mark.parametrize("kib", [36, 72, 104])
def test_a_run_on_a_full_disk_fails_with_a_clear_message_and_leaves_what_it_wrote(tmp_path: Path, kib: int) -> None:
    """A file system of a few KiB, mounted in a namespace of its own."""
    make_tiny_pair(tmp_path / "cache" / "tiny")
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    script = (
        f"mount -t tmpfs -o size={kib}k tmpfs {shlex.quote(str(disk))} || exit 99\n"
        f"{shlex.join(command(disk / 'run', 'lane=L0'))}; code=$?\n"
        f"cp -a {shlex.quote(str(disk / 'run'))} {shlex.quote(str(kept))}; exit $code\n"
    )
    own = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    env = {**os.environ, "VST_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        ["unshare", *own, "--mount", "sh", "-c", script],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 20, done.stdout + done.stderr
    assert "No space left on device" in done.stderr and "free space and start again" in done.stderr
    assert "Traceback" not in done.stderr
    report = verify(kept)
    assert report.findings == [] and report.incomplete is not None, report.lines()
    assert json.loads((kept / "run.json").read_bytes())["state"] == "in_progress"


def test_a_limit_on_the_size_of_files_ends_a_run_the_same_way(tmp_path: Path) -> None:
    """The manifest of a checkpoint does not fit."""
    program = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (6500, {resource.RLIM_INFINITY})); "
        "runpy.run_module('vst', run_name='__main__', alter_sys=True)"
    )
    make_tiny_pair(tmp_path / "cache" / "tiny")
    env = {**os.environ, "VST_CACHE": str(tmp_path / "cache")}
    arguments = ["lane=L0", f"hydra.run.dir={tmp_path / 'run'}", "checkpoint.digest_cache=false"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 20, done.stdout + done.stderr
    assert "File too large" in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run/manifest-model.json").exists()
    assert verify(tmp_path / "run").findings == []


def full(*arguments: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half(real: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    return lambda descriptor, data: real(descriptor, data[: len(data) // 2])


@pytest.mark.parametrize("partly", [False, True])
def test_an_event_that_does_not_fit_leaves_no_half_line_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partly: bool
) -> None:
    run = RunDir(tmp_path / "run", REQUEST)
    run.event("first")
    before = (run / "events.jsonl").read_bytes()
    monkeypatch.setattr(os, "write", half(os.write) if partly else full)
    with pytest.raises(StorageFailure, match=r"events\.jsonl cannot be written: No space left on device"):
        run.event("second")
    run.event("third")
    assert (run / "events.jsonl").read_bytes() == before
    assert run.failure is not None and isinstance(StorageFailure("x"), TransportError)


def test_a_file_that_does_not_fit_leaves_the_old_one_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "run", REQUEST)
    run.write("record-a.json", {"old": 1})
    names = sorted(path.name for path in run.path.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailure, match="record-a.json cannot be written"):
        run.write("record-a.json", {"new": 2})
    monkeypatch.undo()
    assert json.loads((run / "record-a.json").read_bytes()) == {"old": 1}
    assert sorted(path.name for path in run.path.iterdir()) == names
    assert verify(run.path).findings == []


def test_an_atomic_write_replaces_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
