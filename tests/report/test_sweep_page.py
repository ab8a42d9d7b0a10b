from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest
from cluster.conftest import Vst as Local

from report import hostile
from report.stored import ladder
from report.sweeps import write_sweep
from report.test_page import Page
from vst.cluster.outcome import Ending
from vst.cluster.sweep import Run, Sweep
from vst.report.__main__ import main
from vst.report.sweep_page import write_sweep_files
from vst.report.sweep_table import matrix, numbers, swept_keys, swept_runs, worst_of


def rows_of(sweep: Sweep) -> list[dict[str, str]]:
    with (sweep.path / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_is_a_matrix_of_checkpoints_and_lanes_with_the_worst_cause_in_each_cell(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ["step1", "step2", "step3", "step4"], ["L0", "L2", "L3"])
    grid = matrix(swept_runs(sweep))
    assert (grid.row_key, grid.column_key) == ("checkpoint", "lane")
    assert (grid.rows, grid.columns) == (("step1", "step2", "step3", "step4"), ("L0", "L2", "L3"))
    assert worst_of(grid.cells["step3", "L3"]).tone == "fail"
    page = Page(write_sweep_files(sweep).read_text())
    assert (
        "10 of 12 runs passed" in page.text
        and "checkpoint × lane" in page.text
        and "All with model=modela" in page.text
    )
    links = [link for link in page.links if not link.startswith(("#", "data:", "sweep."))]
    assert len(links) == 24 and all((sweep.path / link).exists() for link in links)
    assert "sweep.csv" in page.links and "sweep.json" in page.links
    assert "run time" in page.text


def test_other_keys_and_repeated_ones_share_cells_and_the_worst_counts(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "local", [])
    for number, (words, code) in enumerate(
        [(["oracle.seed=1", "lane=L1"], 0), (["oracle.seed=2", "lane=L1"], 0), (["oracle.seed=2", "lane=L1"], 10)]
    ):
        cause = "fail" if code else None
        ending = Ending("PASS" if not code else "FAIL_CLOSED", code, "", cause)
        sweep.runs.append(Run(number, words, str(number), "", "", state="ended", ending=ending))
    runs = swept_runs(sweep)
    grid = matrix(runs)
    assert swept_keys(runs) == ["oracle.seed"] and grid.row_key == "oracle.seed"
    assert worst_of(grid.cells["2", "verdict"]).tone == "fail" and len(grid.cells["2", "verdict"]) == 2


def test_runs_that_have_not_ended_are_open_and_never_passed(tmp_path: Path) -> None:
    runs = [Run(0, ["lane=L0"], "0", "", "", state="submitted"), Run(1, ["lane=L1"], "1", "", "", scheduler="PENDING")]
    sweep = Sweep(tmp_path, "slurm", [], runs)
    page = Page(write_sweep_files(sweep).read_text())
    assert [link for link in page.links if link.startswith("./")] == [], "there is nothing to lead to"
    assert "0 of 2 runs passed" in page.text and "2 not ended" in page.text and "PENDING" in page.text
    assert [row["verdict"] for row in rows_of(sweep)] == ["not ended", "not ended"]


def test_the_numbers_of_a_run_come_from_its_files(tmp_path: Path) -> None:
    found = numbers(ladder(tmp_path / "run", noise=1e-4))
    assert found["largest"] == 0.0 and found["floor"] == pytest.approx(1e-4) and (found["seconds"] or 0) > 0
    assert found["score"] is None and set(numbers(tmp_path / "nothing").values()) == {None}


def test_hostile_text_is_text_on_the_page_and_no_formula_in_the_table(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", [text[:300] for text in hostile.ALL], ["L0", "=1+1"], hostile.FORMULA)
    text = write_sweep_files(sweep).read_text()
    page = Page(text.replace("<script>\n", "<script>//\n"))
    assert page.tags.count("script") == 1 and "img" not in page.tags and page.handlers == ["onsubmit"]
    assert not [link for link in page.links if link.startswith(("javascript", "http"))]
    assert hostile.SCRIPT in page.text
    for row in rows_of(sweep):
        for cell in row.values():
            assert not cell.lstrip().startswith(("=", "+", "@", "\t")) and "\n" not in cell
            assert not cell.startswith("-") or float(cell) < 0
    assert rows_of(sweep)[1]["lane"] == "'=1+1"


def test_five_hundred_runs_are_drawn_in_seconds_and_stay_under_five_megabytes(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", [f"step{n}" for n in range(100)], ["L0", "L1", "L2", "L3", "L5"])
    begun = time.process_time()
    assert main([str(sweep.path)]) == 0
    assert time.process_time() - begun < 10
    assert (sweep.path / "sweep.html").stat().st_size < 5 << 20
    assert len(rows_of(sweep)) == 500


def test_a_real_sweep_of_local_processes_leaves_its_page_whose_links_resolve(tmp_path: Path) -> None:
    import os

    local = Local(tmp_path, {**os.environ, "VST_CACHE": str(tmp_path / "cache"), "VST_RUNS": str(tmp_path / "runs")})
    code, out = local("-m", "lane=L0", "checkpoint.finite=auto,never", f"hydra.sweep.dir={local.sweep}")
    assert code == 0, out
    assert f"report: {local.sweep}/sweep.html" in out
    page = Page((local.sweep / "sweep.html").read_text())
    files = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert len(files) >= 6 and all((local.sweep / link).is_file() for link in files)
    assert "2 of 2 runs passed" in page.text and "checkpoint.finite" in page.text
