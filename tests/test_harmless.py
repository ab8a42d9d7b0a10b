from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from report import hostile
from report.stored import lane, write_run

from vst.harmless import csv_cell, markdown, plain, visible
from vst.verdict import Check, Outcome


@pytest.mark.parametrize("text", hostile.ALL, ids=hostile.NAMES)
def test_nothing_invisible_is_left(text: str) -> None:
    assert all(char.isprintable() or char == "\n" for char in visible(text))
    assert len(plain(text, 100)) <= 170


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "  =1", "＝1", "\n=1", "\u200b=1"])
def test_no_cell_of_a_table_begins_a_formula(start: str) -> None:
    cell = csv_cell(start)
    out = io.StringIO()
    csv.writer(out).writerow([cell])
    (shown,) = next(csv.reader(io.StringIO(out.getvalue())))
    assert shown[0] in ("'", "\\") and "\n" not in shown


def test_numbers_stay_numbers() -> None:
    assert csv_cell(-1.5) == -1.5 and csv_cell(3) == 3 and csv_cell(None) is None


@pytest.mark.parametrize("text", hostile.ALL, ids=hostile.NAMES)
def test_markdown_shows_the_text_itself(text: str) -> None:
    rendered = MarkdownIt("commonmark").render(f"x {markdown(text)}")
    assert rendered.count("<") == 2, "nothing but the paragraph"


MODULES = ("vst.provenance", "vst.report", "vst.checklist", "vst.status")


@pytest.mark.parametrize("module", MODULES)
def test_no_program_prints_what_a_bundle_is_called_as_it_stands(module: str, tmp_path: Path) -> None:
    path = write_run(tmp_path / f"run {hostile.ANSI}", [lane("L0", Check("files.format", Outcome.PASS))])
    (path / f"strange {hostile.ANSI}{hostile.BIDI}").touch()
    words = ["verify", str(path)] if module == "vst.provenance" else [str(path)]
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)
    shown = done.stdout + done.stderr
    assert shown and all(char.isprintable() or char == "\n" for char in shown)
    assert "Traceback" not in shown and done.returncode in (0, 10)


def test_our_own_answer_to_a_wrong_override_shows_it_as_text(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vst", f"lane.{hostile.ANSI}=1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and "\x1b" not in done.stderr and "\\x1b[2J" in done.stderr
