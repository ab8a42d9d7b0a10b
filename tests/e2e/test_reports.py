"""The pages of real runs: sealed with the run, drawn again alike, and what the checklist takes from them."""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e.conftest import Run
from vst.checklist.evidence import read_all
from vst.checklist.judge import State, judge
from vst.checklist.rows import ROWS
from vst.provenance.__main__ import check_run
from vst.report.material import read_material
from vst.report.page import draw
from vst.verdict import Outcome

SHOWN = ("cold", "identity", "to_b", "back", "families", "caches", "provenance")
NOT_OURS = ("tied", "scales", "draft", "replicas")


def test_the_page_of_a_real_run_is_sealed_with_it_and_is_drawn_again_alike(ladder: Run) -> None:
    assert f"report:   {ladder.dir}/report.html" in ladder.out
    assert check_run(ladder.dir, rerun_checks=True).exit_code == 0
    text = (ladder.dir / "report.html").read_text()
    assert draw(read_material(ladder.dir)) == text
    assert "30 of 30 tensors" in text and "requests held" in text and "record-control-norm.json" in text


def test_no_row_of_the_checklist_is_open_that_a_real_run_has_evidence_for(ladder: Run) -> None:
    (evidence,) = read_all([ladder.dir.resolve()])
    rows = {row.row.id: row for row in judge([evidence])}
    assert {id: rows[id].state for id in SHOWN} == dict.fromkeys(SHOWN, State.DONE)
    assert {id: rows[id].state for id in NOT_OURS} == dict.fromkeys(NOT_OURS, State.NOT_APPLICABLE)
    passed = {source.check for source in evidence.sources if source.outcome is Outcome.PASS}
    for row in ROWS:
        if rows[row.id].state is State.OPEN:
            assert set(row.needs) - passed, f"{row.id} is open and everything that it needs was shown"


def test_one_bit_of_a_real_record_refuses_every_tick(ladder: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(ladder.dir, tmp_path / "copy")
    record = copy / "record-checkpoint-cycle-1.json"
    data = bytearray(record.read_bytes())
    data[len(data) // 2] ^= 1
    record.write_bytes(data)
    rows = judge(read_all([copy.resolve()]))
    assert not [row.row.id for row in rows if row.state in (State.DONE, State.PART, State.NOT_APPLICABLE)]
