"""A bundle holds as it was left, and no file of it can be changed, taken away or added without being named."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint.earlier import earlier_manifest

from vst.checkpoint.tiny import make_tiny_pair
from vst.errors import ConfigError
from vst.provenance.__main__ import check_run, main
from vst.provenance.atomic import file_sha256
from vst.provenance.encoding import to_bytes
from vst.provenance.rundir import DRAWN, RunDir, drawn_from
from vst.provenance.sidecar import Request, Subject, statement
from vst.provenance.verify import verify

from .conftest import Run, run_vst, verify_cli
from .stored_run import StoredRun

Copied = Callable[[Run], Run]


def files(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_file())


def test_a_passing_run_verifies_without_torch_and_vllm(passing: Run) -> None:
    assert passing.code == 0, passing.output
    code, text = verify_cli(passing.path, "--rerun-checks")
    assert code == 0, text
    assert re.match(r"verified: \d+ files and their sidecars hold, PASS, exit code 0\n", text), text


def test_a_failing_run_verifies_and_stays_a_failing_run(failing: Run) -> None:
    assert failing.code == 11, failing.output
    (line,) = verify(failing.path).lines()
    assert re.fullmatch(r"verified: \d+ files and their sidecars hold, FAIL_CLOSED, exit code 11", line), line


def test_a_terminated_run_leaves_a_verdict_that_verifies(terminated: Run) -> None:
    assert terminated.code == 143, terminated.output
    verdict = terminated.json("verdict.json")
    assert (verdict["verdict"], verdict["interrupted"], verdict["exit_code"]) == ("FAIL_CLOSED", True, 143)
    assert terminated.predicate()["outcome"]["error"] == {"class": "Interrupted", "text": "SIGTERM"}
    assert verify(terminated.path).holds


def test_a_killed_run_verifies_as_incomplete_and_what_is_there_holds(killed: Run) -> None:
    assert killed.code == -signal.SIGKILL
    report = verify(killed.path)
    assert report.exit_code == 10 and report.findings == [] and report.files >= 6
    assert report.lines()[0].startswith("incomplete: run.json says in_progress")
    assert killed.json("run.json")["state"] == "in_progress"
    assert killed.predicate("events.jsonl")["verdict"]["verdict"] == "in_progress"


def test_a_wrong_configuration_found_on_the_way_ends_with_2_and_a_bundle_that_verifies(tmp_path: Path) -> None:
    run = run_vst(tmp_path / "run", "lane=publish")
    assert run.code == 2 and "server=attach" in run.output
    assert run.json("run.json")["exit_code"] == 2 and run.json("verdict.json")["interrupted"] is False
    assert run.json("run.json")["error"]["class"] == "ConfigError"
    assert verify(run.path).holds


@pytest.mark.parametrize("kind", ["passing", "failing", "terminated"])
def test_one_flipped_byte_in_any_file_is_found_and_the_file_named(
    kind: str, request: pytest.FixtureRequest, copied: Copied
) -> None:
    run = copied(request.getfixturevalue(kind))
    for name in files(run.path):
        path = run.path / name
        before = path.read_bytes()
        for at in {0, len(before) // 2, len(before) - 1}:
            path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
            report = verify(run.path)
            assert report.exit_code == 10, (name, at)
            assert name in report.lines()[0], (name, at, report.lines())
        path.write_bytes(before)
    assert verify(run.path).holds


def test_one_flipped_byte_in_any_file_of_a_killed_run_is_found_and_the_file_named(killed: Run, copied: Copied) -> None:
    run = copied(killed)
    for name in files(run.path):
        path = run.path / name
        before = path.read_bytes()
        for at in {0, len(before) // 2, len(before) - 1} if before else ():
            path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
            report = verify(run.path)
            assert report.exit_code == 10 and name in str(report.findings[0]), (name, at, report.lines())
        path.write_bytes(before)
    assert verify(run.path).findings == []


def test_an_edited_line_of_the_event_log_of_a_killed_run_is_found(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run", Request((), (), "sha256:" + "0" * 64))
    for number in range(5):
        run.event("step", number=number)
    assert verify(run.path).findings == []
    log = run / "events.jsonl"
    before = log.read_bytes()
    for number, edited in (
        (3, before.replace(b'"number": 2', b'"number": 7')),
        (2, b"".join(before.splitlines(keepends=True)[::2])),
        (5, before[:-5]),
    ):
        log.write_bytes(edited)
        found = f"events.jsonl: the seal of line {number} does not hold: it was edited or cut"
        assert [str(finding) for finding in verify(run.path).findings] == [found]


def test_every_missing_file_is_named(passing: Run, copied: Copied) -> None:
    run = copied(passing)
    for name in files(run.path):
        away = (run.path / name).read_bytes()
        (run.path / name).unlink()
        report = verify(run.path)
        assert report.exit_code == 10
        assert report.lines()[0] == f"does not hold: {name}: is missing"
        (run.path / name).write_bytes(away)


@pytest.mark.parametrize(
    "name", ["extra.json", ".hydra/extra.yaml", "verdict.json.meta.json.meta.json", ".verdict.json.x"]
)
def test_an_extra_file_is_named(passing: Run, copied: Copied, name: str) -> None:
    run = copied(passing)
    (run.path / name).write_text("{}")
    assert verify(run.path).lines()[0] == (
        f"does not hold: {name}: is not a file of this run: run.json does not list it"
    )


def test_a_link_in_place_of_a_file_is_named(passing: Run, copied: Copied, tmp_path: Path) -> None:
    run = copied(passing)
    (run.path / "verdict.json").rename(tmp_path / "elsewhere.json")
    (run.path / "verdict.json").symlink_to(tmp_path / "elsewhere.json")
    assert str(verify(run.path).findings[0]) == "verdict.json: is not a regular file"


def reseal(run: Run, name: str, content: Any) -> None:
    """Edit a file as a careful forger would: with its digest in its sidecar, in run.json and in that one's sidecar."""
    data = to_bytes(content)
    (run.path / name).write_bytes(data)
    _restate(run, name, data)
    for page in DRAWN:
        _restate(run, page, (run.path / page).read_bytes())
    listing = run.json("run.json")
    for entry in listing["artifacts"]:
        content = (run.path / entry["name"]).read_bytes()
        entry["bytes"], entry["sha256"] = len(content), hashlib.sha256(content).hexdigest()
        sidecar = (run.path / f"{entry['name']}.meta.json").read_bytes()
        entry["sidecar_sha256"] = hashlib.sha256(sidecar).hexdigest()
    listed = to_bytes(listing)
    (run.path / "run.json").write_bytes(listed)
    _restate(run, "run.json", listed)


def _restate(run: Run, name: str, data: bytes) -> None:
    listed = [entry["name"] for entry in run.json("run.json")["artifacts"]]
    sources = tuple((one, file_sha256(run.path / one)) for one in drawn_from(name, listed))
    subject = Subject(name, hashlib.sha256(data).hexdigest(), len(data), derived_from=sources)
    (run.path / f"{name}.meta.json").write_bytes(to_bytes(statement(subject, run.predicate(name))))


def test_an_edited_verdict_is_found_although_every_digest_was_made_to_fit(failing: Run, copied: Copied) -> None:
    run = copied(failing)
    verdict = run.json("verdict.json")
    verdict.update({"verdict": "PASS", "cause": None, "exit_code": 0})
    reseal(run, "verdict.json", verdict)
    found = [str(finding) for finding in verify(run.path).findings]
    assert found[0] == "verdict.json: verdict is 'PASS', its lanes give 'FAIL_CLOSED'"
    assert "run.json: says verdict 'FAIL_CLOSED', verdict.json says 'PASS'" in found
    assert "run.json.meta.json: tells another verdict than verdict.json" in found


def test_an_edited_check_is_found_although_every_digest_was_made_to_fit(failing: Run, copied: Copied) -> None:
    run = copied(failing)
    verdict = run.json("verdict.json")
    bad = next(check for check in verdict["lanes"][0]["checks"] if check["outcome"] == "refused")
    bad["outcome"] = "pass"
    reseal(run, "verdict.json", verdict)
    assert "tells another verdict" in "\n".join(verify(run.path).lines())


def test_an_edited_manifest_contradicts_itself_although_every_digest_was_made_to_fit(
    passing: Run, copied: Copied
) -> None:
    run = copied(passing)
    manifest = run.json("manifest-model.json")
    manifest["tensors"][0][6] = "blake3:" + "0" * 64
    reseal(run, "manifest-model.json", manifest)
    assert str(verify(run.path).findings[0]).startswith("manifest-model.json: manifest contradicts itself")


@pytest.mark.parametrize("stated", [None, "sha256:" + "0" * 64])
def test_a_bundle_from_before_blake3_is_held_against_its_own_digests(tmp_path: Path, stated: str | None) -> None:
    a, _ = make_tiny_pair(tmp_path / "tiny")
    manifest = earlier_manifest(a)
    stored = StoredRun(tmp_path / "run")
    digests = {key: manifest[key] for key in ("layout_digest", "content_digest")}
    stored.run.inputs["model"] = {"path": str(a), **digests, **({"content_digest": stated} if stated else {})}
    stored.run.write("manifest-model.json", manifest)
    found = [str(finding) for finding in verify(stored.finish()).findings]
    wrong = "manifest-model.json: has other digests than inputs.model of run.json.meta.json"
    assert found == ([wrong] if stated else [])


def test_a_file_announced_by_its_sidecar_and_not_yet_written_is_a_note(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run", Request((), (), "sha256:" + "0" * 64))
    path = run.write("manifest-model.json", {"format": "x"})
    old = path.read_bytes()
    run.write("manifest-model.json", {"format": "y"})
    path.write_bytes(old)
    assert verify(run.path).findings == [], "killed between the new sidecar and the new file"
    path.unlink()
    assert verify(run.path).notes == ["manifest-model.json was announced and is not there"]


def test_a_log_without_a_sidecar_in_a_killed_run_is_a_note(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run", Request((), (), "sha256:" + "0" * 64))
    (run / "server-model.log").write_text("started\n")
    run.event("anything")
    report = verify(run.path)
    assert report.exit_code == 10 and report.notes == ["server-model.log has no sidecar yet"]


def test_what_is_no_run_directory_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="is not a run directory"):
        check_run(tmp_path)
    assert main(["verify", str(tmp_path / "nothing")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_damage_beyond_reading_is_reported_and_never_raises(passing: Run, copied: Copied) -> None:
    run = copied(passing)
    for name, content in (("run.json", b"\xff\x00"), ("verdict.json", b"[]"), ("run.json.meta.json", b"{}")):
        before = (run.path / name).read_bytes()
        (run.path / name).write_bytes(content)
        report = check_run(run.path, rerun_checks=True)
        assert report.exit_code == 10 and name in "\n".join(report.lines())
        (run.path / name).write_bytes(before)
    listing = run.json("run.json")
    for broken in ([], None, [{}], [{"name": 3}], "x"):
        (run.path / "run.json").write_bytes(json.dumps({**listing, "artifacts": broken}).encode())
        assert verify(run.path).exit_code == 10
    os.truncate(run.path / "run.json", 0)
    assert str(verify(run.path).findings[0]).startswith("run.json: is not a JSON object")
