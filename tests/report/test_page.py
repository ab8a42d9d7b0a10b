from __future__ import annotations

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from report import hostile
from report.stored import ladder, lane, write_run
from vst.provenance.__main__ import check_run
from vst.report.__main__ import main
from vst.report.material import read_material
from vst.report.page import draw
from vst.report.summary import summarise
from vst.verdict import Check, Outcome


class Page(HTMLParser):
    """What a reader gets: the text, the tags, the addresses, the anchors; and whether every tag was closed."""

    VOID = ("meta", "link", "br", "input", "img", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.links += [str(named[key]) for key in ("href", "src") if key in named]
        self.ids += [str(named["id"])] if "id" in named else []
        self.handlers += [name for name in named if name.startswith("on")]
        if tag not in self.VOID and not (self._open and self._open[-1] == "svg" and tag in ("rect", "line", "path")):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(path: Path) -> Page:
    return Page((path / "report.html").read_text())


def test_a_passing_run_says_what_was_proven_and_what_was_not(tmp_path: Path) -> None:
    page = page_of(ladder(tmp_path / "run"))
    assert page.text.startswith("PASS · lane ladder")
    assert "A push of B makes the server answer like a cold start of B" in page.text
    assert "L4, L5, L6 did not run" in page.text
    assert "record-checkpoint-cycle-1.json" in page.text and "python -m vst.provenance verify" in page.text


def test_a_failing_run_names_the_check_the_first_probe_and_the_servers_state_before_anything_else(
    tmp_path: Path,
) -> None:
    path = ladder(tmp_path / "run", {"checkpoint-cycle-2": -1.5})
    text = (path / "report.html").read_text()
    band = Page(text[text.index("<header") : text.index("</header>") + len("</header>")]).text
    assert "FAIL_CLOSED" in band and "transition.to_b in L3" in band
    assert "probe 0, prompt position 1 observed -1.5 , expected -3" in band
    assert "Server at the end serving , holds checkpoint" in band


def test_every_link_leads_to_a_file_of_the_run_or_to_a_place_on_the_page(tmp_path: Path) -> None:
    path = ladder(tmp_path / "run", {"checkpoint-cycle-2": -1.5})
    page = page_of(path)
    inside = [link[1:] for link in page.links if link.startswith("#")]
    files = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert inside and set(inside) <= set(page.ids) and len(set(page.ids)) == len(page.ids)
    assert len(files) > 20 and all((path / link).is_file() for link in files)


def test_the_page_asks_for_nothing_from_anywhere(tmp_path: Path) -> None:
    text = (ladder(tmp_path / "run") / "report.html").read_text()
    assert "default-src 'none'" in text
    page = Page(text)
    assert not re.search(r"(?:url\(|@import|https?://|//[a-z])", re.sub(r"<pre.*?</pre>", "", text, flags=re.S))
    assert {"script", "iframe", "object", "embed", "img"}.isdisjoint(page.tags)


def test_the_page_and_the_checklist_are_files_of_the_run_with_their_inputs_in_the_sidecar(tmp_path: Path) -> None:
    path = ladder(tmp_path / "run")
    assert check_run(path, rerun_checks=True).exit_code == 0
    listed = {entry["name"] for entry in json.loads((path / "run.json").read_text())["artifacts"]}
    assert {"report.html", "checklist.md"} <= listed
    for name in ("report.html", "checklist.md"):
        notes = json.loads((path / f"{name}.meta.json").read_text())["subject"][0]["annotations"]
        assert {one["name"] for one in notes["derived_from"]} == listed - {"report.html", "checklist.md"}
    assert "derived_from" not in (path / "verdict.json.meta.json").read_text()


@pytest.mark.parametrize("name", ["report.html", "checklist.md", "report.html.meta.json", "record-model-1.json"])
def test_a_page_that_was_changed_or_whose_inputs_were_is_found(tmp_path: Path, name: str) -> None:
    path = ladder(tmp_path / "run")
    file = path / name
    file.write_bytes(file.read_bytes().replace(b"PASS", b"FAIL").replace(b"-1.0", b"-1.1") + b"\n")
    report = check_run(path)
    assert report.exit_code == 10 and report.findings[0].name == name


def test_the_page_is_drawn_again_from_the_files_alone_byte_for_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ladder(tmp_path / "run")
    moved = Path(shutil.move(path, tmp_path / "elsewhere"))
    assert draw(read_material(moved)).encode() == (moved / "report.html").read_bytes()
    assert main([str(moved)]) == 0, capsys.readouterr().out
    again = Page((tmp_path / "elsewhere.html").read_text())
    files = [link for link in again.links if not link.startswith(("#", "data:"))]
    assert len(files) > 20 and all((tmp_path / link).is_file() for link in files)
    assert check_run(moved).exit_code == 0, "drawing again must not touch the run"


def test_drawing_again_says_when_the_bundle_does_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ladder(tmp_path / "run")
    (path / "record-model-1.json").write_text("{}")
    assert main([str(path)]) == 10
    assert "does not hold: record-model-1.json" in capsys.readouterr().out
    assert "Do not believe what follows" in Page((tmp_path / "run.html").read_text()).text


def test_a_page_does_not_go_into_the_sealed_run_and_other_directories_are_refused(tmp_path: Path) -> None:
    path = ladder(tmp_path / "run")
    assert main([str(path), "--output", str(path / "again.html")]) == 2
    assert main([str(tmp_path)]) == 2 and main([str(tmp_path / "nothing")]) == 2


def test_an_interrupted_run_and_one_without_a_verdict_prove_nothing(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [lane("L0", Check("files.format", Outcome.PASS))], interrupted=130)
    head = summarise(read_material(path))
    assert (
        head.word == "FAIL_CLOSED" and head.sentence.startswith("Interrupted by a signal") and "L0 had" in head.sentence
    )
    for name in ("verdict.json", "verdict.json.meta.json"):
        (path / name).unlink()
    text = Page(draw(read_material(path))).text
    assert "NO VERDICT" in text and "Nothing is proven" in text


def hostile_lane() -> list[Check]:
    """Checks with hostile text in every place that text can be in."""
    checks = []
    for number, text in enumerate(hostile.ALL):
        observed = {text[:300]: [text, {"deep": text}], "first": {"probe": text, "where": text, "position": text}}
        for outcome in (Outcome.FAIL, Outcome.NOT_APPLICABLE):
            id = f"files.{number}{outcome.value}"
            checks.append(Check(id, outcome, observed, text, text, text, warnings=(text,)))
    checks.append(Check(f"control.{hostile.TEXT}", Outcome.FAIL, {"tensors": hostile.TEXT}, reason=hostile.TEXT))
    checks.append(Check(f"eval.{hostile.TEXT}", Outcome.FAIL, [{hostile.TEXT: hostile.TEXT}], reason=hostile.TEXT))
    return checks


def test_hostile_text_is_shown_as_text_on_the_page(tmp_path: Path) -> None:
    server = {key: hostile.TEXT for key in ("state", "holds", "left")}
    path = write_run(tmp_path / "run", [lane(f"L0{hostile.TEXT}", *hostile_lane())], server, name=hostile.TEXT)
    text = (path / "report.html").read_text()
    page = Page(text)
    assert {"script", "img", "b"}.isdisjoint(page.tags) and page.handlers == []
    assert not [link for link in page.links if link.startswith(("javascript", "http"))]
    assert all(char.isprintable() or char == "\n" for char in html.unescape(text))
    assert hostile.SCRIPT in page.text and "\\x1b[2J" in page.text and "\\u202e" in page.text
    assert "{{ 7 * 7 }}" in page.text and "49" not in re.sub(r"[0-9a-f]{16,}", "", page.text)
    assert len(text) < 1_500_000, "long text is cut"
    assert check_run(path).exit_code == 0


def test_hostile_text_stays_in_its_cell_of_the_checklist(tmp_path: Path) -> None:
    checks = [Check("identity.record", Outcome.FAIL, reason=text) for text in hostile.ALL]
    path = write_run(tmp_path / "run", [lane("L2", *checks)], name=hostile.TEXT)
    text = (path / "checklist.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 19 and all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert all(char.isprintable() or char == "\n" for char in text)
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    page = Page(rendered.replace("<br>", "<br/>"))
    assert {"script", "img", "b"}.isdisjoint(page.tags) and page.handlers == []
    assert set(page.links) == {"verdict.json"}, "no link but to the evidence"
    assert hostile.SCRIPT in page.text and hostile.MARKDOWN in page.text


def test_a_run_with_very_many_records_is_drawn_within_bounds(tmp_path: Path) -> None:
    path = ladder(tmp_path / "run")
    source = (path / "record-model-1.json").read_bytes()
    for number in range(400):
        (path / f"record-cycle-{number:04}.json").write_bytes(source)
    material = read_material(path)
    assert any("records, those in the middle" in one for one in material.omitted)
    assert len(draw(material)) < 2_000_000


def test_damaged_files_cost_a_section_and_not_the_page(tmp_path: Path) -> None:
    path = ladder(tmp_path / "run")
    (path / "record-model-1.json").write_bytes(b"\xff{")
    (path / "events.jsonl").write_bytes(b'{"kind": "server_state", "utc": "never"}\nnot json\n')
    text = Page(draw(read_material(path))).text
    assert "record-model-1.json: not a record" in text


PAIR = {
    "n": 100, "both": 60, "lost": 3, "gained": 1, "neither": 36, "difference": -0.02, "interval": [-0.07, 0.02],
    "mcnemar_p": 0.625, "margin": 0.05, "smallest_effect": 0.08, "accuracy": [0.63, 0.61], "power": 0.8,
}  # fmt: skip


def test_an_evaluation_shows_its_paired_interval_and_the_questions_that_changed(tmp_path: Path) -> None:
    paired = Check("eval.paired", Outcome.INCONCLUSIVE, {"cold B to B": PAIR, "A to B": "odd"}, reason="too few")
    records = Check("eval.reference", Outcome.FAIL, {"differing": [3, 17, *range(100, 150)]})
    page = page_of(write_run(tmp_path / "run", [lane("L5", paired, records)]))
    assert "cold B to B 100 3 1 -0.0200 -0.0700 to +0.0200 0.625 0.08" in page.text
    assert "records of these questions changed: 3, 17, 100" in page.text and "and 12 more" in page.text


def test_cycles_show_memory_phases_and_traffic(tmp_path: Path) -> None:
    check = Check("memory.trend", Outcome.PASS, {"slope": 12.5}, evidence="endurance.json")
    path = write_run(tmp_path / "run", [lane("L6", check)])
    content = {
        "memory": {"source": "resident memory", "bytes": [1 << 30, (1 << 30) + 4096, 1 << 30]},
        "phases": {"push.broadcast": {"n": 6, "min": 0.1, "median": 0.2, "max": 0.4}},
    }
    (path / "endurance.json").write_text(json.dumps(content))
    page = Page(draw(read_material(path)))
    assert "Memory after each change of every cycle: resident memory" in page.text and "1024 MiB" in page.text
    assert "push.broadcast 6 0.1 – 0.2 – – 0.4" in page.text and "slope 12.5" in page.text


def test_of_several_servers_each_is_named_with_where_it_was_left(tmp_path: Path) -> None:
    each = [
        {"server": f"server {n}", "state": state, "holds": "B", "left": "paused"}
        for n, state in ((1, "serving"), (2, "dead"))
    ]
    server = {"state": "dead", "holds": "B", "left": "paused", "servers": each}
    page = page_of(write_run(tmp_path / "run", [lane("L3", Check("transition.to_b", Outcome.FAIL))], server))
    assert "server 1: serving, left: paused server 2: dead, left: paused" in page.text
