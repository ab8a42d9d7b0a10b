"""The files that a run adds about itself at its end: ``report.html`` and ``checklist.md``."""

from __future__ import annotations

from pathlib import Path

from vst.checklist.evidence import from_material
from vst.checklist.judge import judge
from vst.checklist.text import as_markdown
from vst.provenance.rundir import DRAWN
from vst.report.material import Material, read_material
from vst.report.page import draw


def draw_files(path: Path) -> dict[str, bytes]:
    """Both files of the run in ``path`` as they follow from its other files."""
    material = read_material(path)
    page, rows = DRAWN
    return {page: encoded(draw(material)), rows: encoded(checklist(material))}


def checklist(material: Material) -> str:
    """The checklist as far as this run alone fills it."""
    evidence = from_material(material)
    return as_markdown(judge([evidence]), [evidence], evidence.model, base="")


def encoded(text: str) -> bytes:
    """The text as UTF-8; a file name that is none was made visible before."""
    return text.encode("utf-8", "backslashreplace")
