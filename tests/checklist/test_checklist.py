from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from report.stored import ladder, write_run

from vst.checklist.__main__ import main
from vst.checklist.evidence import RunEvidence, read_all
from vst.checklist.judge import Judged, State, judge
from vst.checklist.rows import ROWS
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.report.claims import CHECKS
from vst.verdict import Check, LaneVerdict, Outcome

CONFIG = {"model": {"tie_word_embeddings": False, "quantised_tensors": 0}}


def passing(*ids: str) -> list[Check]:
    return [Check(id, Outcome.PASS) for id in ids]


def needed(*rows: str) -> list[str]:
    """Every check that these rows need, with a name for each pattern."""
    ids = dict.fromkeys(need.replace("*", "norm") for row in ROWS if row.id in rows or not rows for need in row.needs)
    return list(ids)


def run(path: Path, *checks: Check, name: str = "modela", layout: str = "sha256:" + "a" * 64) -> Path:
    return write_run(path, [LaneVerdict("L3", checks)], name=name, layout=layout)


def rows_of(*paths: Path) -> dict[str, Judged]:
    return {row.row.id: row for row in judge(read_all([path.resolve() for path in paths]))}


def test_every_need_of_a_row_is_a_check_that_the_claims_know() -> None:
    patterns = [pattern for pattern, _ in CHECKS]
    for row in ROWS:
        for need in (*row.needs, *row.besides):
            assert any(fnmatchcase(need.replace("*", "x"), pattern) for pattern in patterns), need


def test_without_evidence_nothing_is_ticked(tmp_path: Path) -> None:
    states = {id: row.state for id, row in rows_of(run(tmp_path / "run", Check("other.check", Outcome.PASS))).items()}
    assert states.pop("provenance") is State.DONE, "the bundle itself is evidence of that row"
    assert set(states.values()) == {State.OPEN}


def test_everything_shown_is_done_over_many_runs_and_ends_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, row in enumerate(ROWS):
        if row.needs:
            run(tmp_path / f"runs/{number}", *passing(*needed(row.id)))
    assert main([str(tmp_path / "runs"), "--output", str(tmp_path / "list.md")]) == 0
    assert capsys.readouterr().out.count("[x]") == len(ROWS)
    text = (tmp_path / "list.md").read_text()
    assert text.count("| [x] |") == len(ROWS) and "# Day-0 checklist: modela" in text


@pytest.mark.parametrize("row", [row for row in ROWS if len(row.needs) > 1], ids=lambda row: row.id)
def test_a_row_is_open_while_one_of_its_checks_is_missing(tmp_path: Path, row: object) -> None:
    chosen = next(one for one in ROWS if one == row)
    ids = needed(chosen.id)
    found = rows_of(run(tmp_path / "run", *passing(*ids[:-1])))[chosen.id]
    assert found.state is State.OPEN and ids[-1] in found.why


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR, Outcome.REFUSED, Outcome.INCONCLUSIVE])
def test_contradicting_runs_are_shown_and_the_worse_counts(
    tmp_path: Path, outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    good = run(tmp_path / "runs/good", *passing("identity.record"))
    bad = run(tmp_path / "runs/bad", Check("identity.record", outcome, reason="it moved"))
    found = rows_of(good, bad)["identity"]
    assert found.state is (State.FAILED if outcome is Outcome.FAIL else State.OPEN)
    assert "it moved" in found.why
    assert main([str(tmp_path / "runs")]) == (10 if outcome is Outcome.FAIL else 12)
    assert f"identity.record passes in good and is {outcome.value} in bad" in capsys.readouterr().out


def test_what_is_declared_is_not_applicable_with_its_reason_and_half_of_it_is_no_tick(tmp_path: Path) -> None:
    away = [Check(id, Outcome.NOT_APPLICABLE, reason="declared: no GPU") for id in needed("sleep")]
    assert rows_of(run(tmp_path / "all", *away))["sleep"].state is State.NOT_APPLICABLE
    found = rows_of(run(tmp_path / "half", *passing(needed("sleep")[0]), *away[1:]))["sleep"]
    assert found.state is State.PART and "sleep.memory: declared: no GPU" in found.why


def test_what_one_run_declared_away_and_another_showed_is_shown(tmp_path: Path) -> None:
    away = run(tmp_path / "cpu", Check("identity.record", Outcome.NOT_APPLICABLE, reason="declared"))
    assert rows_of(away, run(tmp_path / "gpu", *passing("identity.record")))["identity"].state is State.DONE


def test_families_that_were_left_out_by_choice_leave_the_row_open(tmp_path: Path) -> None:
    why = "declared by lane.controls: this family was not asked for"
    left_out = Check("control.head", Outcome.NOT_APPLICABLE, reason=why)
    found = rows_of(run(tmp_path / "run", *passing("control.norm"), left_out))["families"]
    assert found.state is State.OPEN and "control.head" in found.why
    whole = rows_of(tmp_path / "run", run(tmp_path / "more", *passing("control.head")))["families"]
    assert whole.state is State.DONE


def test_tied_and_quantised_rows_do_not_apply_only_where_the_files_say_so(tmp_path: Path) -> None:
    untied = run(tmp_path / "untied", Check("files.config", Outcome.PASS, CONFIG))
    assert rows_of(untied)["tied"].state is rows_of(untied)["scales"].state is State.NOT_APPLICABLE
    assert "tie_word_embeddings is false" in rows_of(untied)["tied"].why
    silent = run(tmp_path / "silent", Check("files.config", Outcome.PASS, {"model": {"tie_word_embeddings": None}}))
    assert rows_of(silent)["tied"].state is State.OPEN
    assert rows_of(untied, silent)["tied"].state is State.OPEN, "two runs that do not agree decide nothing"


def spoil(path: Path, name: str) -> None:
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)


@pytest.mark.parametrize(
    "name", ["verdict.json", "record-model-1.json", "run.json", "verdict.json.meta.json", "events.jsonl"]
)
def test_one_broken_digest_refuses_every_tick(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    good = run(tmp_path / "runs/good", *passing(*needed()))
    bad = ladder(tmp_path / "runs/bad")
    assert rows_of(good, bad)["back"].state is State.DONE
    spoil(bad, name)
    found = rows_of(good, bad)
    assert found["provenance"].state is State.FAILED
    assert {row.state for id, row in found.items() if id != "provenance"} == {State.REFUSED}
    assert main([str(tmp_path / "runs")]) == 10
    shown = capsys.readouterr().out
    assert "[x]" not in shown and "bad does not verify" in shown


def test_a_forged_outcome_is_refused_although_it_says_pass(tmp_path: Path) -> None:
    path = run(tmp_path / "run", Check("identity.record", Outcome.FAIL, reason="it moved"))
    verdict = json.loads((path / "verdict.json").read_text())
    verdict["lanes"][0]["checks"][0]["outcome"] = "pass"
    (path / "verdict.json").write_text(json.dumps(verdict))
    assert rows_of(path)["identity"].state is State.OPEN, "nothing is taken from it"
    assert rows_of(path)["provenance"].state is State.FAILED


def test_a_run_that_was_killed_is_named_and_not_counted(tmp_path: Path) -> None:
    RunDir(tmp_path / "runs/killed", Request((), (), "sha256:" + "0" * 64))
    good = run(tmp_path / "runs/good", *passing("identity.record"))
    found = rows_of(good, tmp_path / "runs/killed")
    assert found["identity"].state is State.DONE
    assert found["provenance"].state is State.PART and "killed is not counted" in found["provenance"].why


def test_runs_of_two_models_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "runs/1", *passing("identity.record"))
    run(tmp_path / "runs/2", *passing("transition.back"), name="modelb")
    assert main([str(tmp_path / "runs")]) == 2
    assert "choose one with --model" in capsys.readouterr().err
    assert main([str(tmp_path / "runs"), "--model", "modelb"]) == 12
    shown = capsys.readouterr().out
    assert "[x]  B → A" in shown and "[x]  Identity" not in shown
    assert main([str(tmp_path / "runs"), "--model", "modelc"]) == 2
    run(tmp_path / "runs/3", *passing("identity.record"), layout="sha256:" + "c" * 64)
    assert main([str(tmp_path / "runs"), "--model", "modela"]) == 2
    assert "different layouts" in capsys.readouterr().err


def test_a_directory_without_runs_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_the_checklist_links_each_finding_to_its_evidence_by_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder(tmp_path / "runs/1")
    monkeypatch.chdir(tmp_path)
    main(["runs", "--output", "list.md"])
    text = (tmp_path / "list.md").read_text()
    (evidence,) = [one for one in read_all([(tmp_path / "runs/1").resolve()])]
    assert isinstance(evidence, RunEvidence)
    source = next(one for one in evidence.sources if one.check == "control.norm")
    assert f"(runs/1/record-control-norm.json) `{source.sha256[:16]}`" in text
    assert len(source.sha256) == 64


def test_the_list_of_a_run_itself_does_not_tick_its_own_provenance(tmp_path: Path) -> None:
    text = (ladder(tmp_path / "run") / "checklist.md").read_text()
    (row,) = [line for line in text.splitlines() if "**Provenance**" in line]
    assert row.startswith("| [ ] |") and "not verified" in row
    assert "| [x] | **B → A**" in text


def test_a_run_against_the_scripted_double_ticks_nothing(tmp_path: Path) -> None:
    lanes = [LaneVerdict("L3", tuple(passing(*needed())))]
    path = write_run(tmp_path / "double", lanes, config=b"server: {kind: scripted}\n")
    found = rows_of(path)
    assert {row.state for row in found.values()} == {State.OPEN}
    assert "scripted double" in found["provenance"].why
    assert "| [x] |" not in (path / "checklist.md").read_text()


def test_one_server_with_one_rank_leaves_nothing_to_judge_for_replicas(tmp_path: Path) -> None:
    alone, parallel = b"server: {data_parallel_size: 1}\n", b"server: {data_parallel_size: 2}\n"
    lanes = [LaneVerdict("L1", tuple(passing("server.alive")))]
    one, two = write_run(tmp_path / "1", lanes, config=alone), write_run(tmp_path / "2", lanes, config=parallel)
    assert rows_of(one)["replicas"].state is State.NOT_APPLICABLE
    assert rows_of(two)["replicas"].state is rows_of(one, two)["replicas"].state is State.OPEN
