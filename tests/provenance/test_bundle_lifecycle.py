"""The lifecycle of a run: its phases in order, whole in every sidecar as long as it is short."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from vst.provenance.block import unexplained
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.provenance.timeline import EMBEDDED, Timeline

SERVER = {"state": "unknown", "holds": "unknown", "left": "no server was used"}
VERDICT = {"verdict": "FAIL_CLOSED", "lane": "L2", "cause": "error", "exit_code": 20, "server": SERVER, "lanes": []}


def test_phases_of_transactions_are_ordered_and_a_failed_one_says_how_far_it_came() -> None:
    line = Timeline()
    line.begin("server.start model").end()
    line.open(1, "identity", "default")
    push = line.begin("push")
    for report in ({"event": "phase", "phase": "join"}, {"event": "phase", "phase": "start"}):
        line.publisher(report)
    line.publisher({"event": "phase", "phase": "broadcast"})
    line.publisher({"event": "progress", "bytes": 17, "total": 17})
    line.publisher({"event": "phase", "phase": "finish"})
    line.publisher({"event": "done"})
    push.end()
    line.close("label-1", 17, 2)
    line.open(2, "transition", "label-1")
    line.begin("push")
    line.publisher({"event": "phase", "phase": "start"})
    line.publisher({"event": "phase", "phase": "broadcast"})
    line.fail("publisher, phase broadcast: died")
    block = line.block(None)
    names = [(one["phase"], one["transaction"]) for one in block["phases"]]
    assert names == [
        ("server.start model", None), ("push", 1), ("push.start", 1), ("push.broadcast", 1), ("push.finish", 1),
        ("push", 2), ("push.start", 2), ("push.broadcast", 2),
    ]  # fmt: skip
    assert block["phases"][3]["bytes"] == 17 and block["phases"][3]["seconds"] >= 0
    first, second = block["transactions"]
    assert (first["outcome"], first["bytes"], first["buckets"]) == ("finished", 17, 2)
    assert (first["weight_version"]["before"], first["weight_version"]["after"]) == ("default", "label-1")
    assert second["outcome"] == "failed" and second["weight_version"]["after"] is None
    assert "phase broadcast: died" in second["weight_version"]["unknown"]["after"]
    assert "phase broadcast: died" in block["phases"][-1]["unknown"]["seconds"]
    assert list(unexplained(block)) == []


def test_a_long_lifecycle_is_whole_in_a_file_of_its_own_and_short_in_every_sidecar(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run", Request(("vst",), (), "sha256:" + "0" * 64))
    for number in range(1, EMBEDDED + 51):
        run.evidence.timeline.open(number, "transition", "a")
        run.evidence.timeline.begin("push").end()
        run.evidence.timeline.close("b", 1, None)
    run.finish(VERDICT, {"exit_code": 20, "verdict": "FAIL_CLOSED", "server": SERVER, "attempt": 1})
    whole = json.loads((run / "lifecycle.json").read_bytes())
    block = json.loads((run / "verdict.json.meta.json").read_bytes())["predicate"]["lifecycle"]
    assert len(whole["transactions"]) == len(whole["phases"]) == EMBEDDED + 50
    assert len(block["transactions"]) == EMBEDDED and block["omitted"] == {"phases": 50, "transactions": 50}
    assert [block["transactions"][at]["number"] for at in (0, 99, 100, -1)] == [1, 100, 151, 250]
    assert block["file"]["sha256"] == hashlib.sha256((run / "lifecycle.json").read_bytes()).hexdigest()
