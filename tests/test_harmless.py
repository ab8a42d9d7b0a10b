from __future__ import annotations

import csv
import io

import pytest
from markdown_it import MarkdownIt
from report import hostile

from vst.harmless import csv_cell, markdown, plain, visible


@pytest.mark.parametrize("text", hostile.ALL)
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


@pytest.mark.parametrize("text", hostile.ALL)
def test_markdown_shows_the_text_itself(text: str) -> None:
    rendered = MarkdownIt("commonmark").render(f"x {markdown(text)}")
    assert rendered.count("<") == 2, "nothing but the paragraph"
