"""A log of its own in a run directory: it grows from any thread and is part of the evidence at the end."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from vst.provenance.atomic import StorageFailure
from vst.provenance.eventlog import broken_line
from vst.provenance.redaction import Scrubber
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.provenance.verify import verify

REQUEST = Request(("vst",), (), "sha256:" + "0" * 64)
SERVER = {"state": "serving", "holds": "model", "left": "stopped"}
VERDICT = {"verdict": "PASS", "lane": "L1", "cause": None, "exit_code": 0, "lanes": [], "server": SERVER}
OUTCOME = {"exit_code": 0, "verdict": "PASS", "server": SERVER, "attempt": 1, "error": None}


def open_run(path: Path, *secrets: str) -> RunDir:
    run = RunDir(path, REQUEST, Scrubber(secrets))
    run.evidence.source = run.evidence.machine = {"unknown": {}}
    return run


def test_lines_from_many_threads_are_all_there_whole_and_in_one_chain(tmp_path: Path) -> None:
    journal = open_run(tmp_path / "run").journal("load-1.jsonl")
    threads = [
        threading.Thread(target=lambda name=name: [journal.append("answer", name=name, n=n) for n in range(50)])
        for name in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = (tmp_path / "run" / "load-1.jsonl").read_bytes()
    lines = [json.loads(line) for line in data.splitlines()]
    assert sorted((line["name"], line["n"]) for line in lines) == [(name, n) for name in range(8) for n in range(50)]
    assert broken_line(data) is None


def test_finished_run_lists_its_journals_and_each_has_a_sidecar(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    journal = run.journal("load-1.jsonl")
    journal.append("answer", n=1)
    run.finish(VERDICT, OUTCOME)
    listed = json.loads((tmp_path / "run" / "run.json").read_text())["artifacts"]
    assert "load-1.jsonl" in [entry["name"] for entry in listed]
    assert (tmp_path / "run" / "load-1.jsonl.meta.json").exists()
    with pytest.raises(StorageFailure, match="load-1.jsonl cannot be written"):
        journal.append("answer", n=2)
    edited = (tmp_path / "run" / "load-1.jsonl").read_bytes().replace(b'"n": 1', b'"n": 3')
    (tmp_path / "run" / "load-1.jsonl").write_bytes(edited)
    assert "load-1.jsonl" in [finding.name for finding in verify(tmp_path / "run").findings]


def test_secret_in_a_line_is_masked_and_tokens_are_not(tmp_path: Path) -> None:
    journal = open_run(tmp_path / "run", "sesame-open").journal("load-1.jsonl")
    journal.append("answer", error="401: sesame-open", tokens=[1, 2], logprobs=[float("nan")])
    text = (tmp_path / "run" / "load-1.jsonl").read_text()
    assert "sesame" not in text
    assert json.loads(text)["tokens"] == [1, 2]
    assert json.loads(text)["logprobs"] == ["nan"]


def test_line_that_does_not_fit_is_refused_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from vst.provenance.atomic import StorageFailure\n"
        "from vst.provenance.journal import Journal\n"
        "from vst.provenance.redaction import Scrubber\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (300, {resource.RLIM_INFINITY}))\n"
        "journal = Journal(Path(sys.argv[1]), Scrubber())\n"
        "journal.append('answer', text='a' * 100)\n"
        "try: journal.append('answer', text='b' * 200)\n"
        "except StorageFailure as error: print(error)\n"
    )
    path = tmp_path / "load-1.jsonl"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)
    assert "cannot be written" in done.stdout, done.stdout + done.stderr
    assert b"b" * 50 not in path.read_bytes()
    assert broken_line(path.read_bytes()) is None
