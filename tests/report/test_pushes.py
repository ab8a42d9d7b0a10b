from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from report.stored import ladder
from vst.report.material import Material, read_events, read_material
from vst.report.page import draw
from vst.report.pushes import longest_push

ZERO = "2026-01-01T00:00:"


def at(second: float) -> str:
    return f"{ZERO}{second:09.6f}Z"


def stage(name: str, first: float, last: float, busy: float) -> dict[str, Any]:
    return {"stage": name, "bytes": 1000, "busy_s": busy, "first_s": first, "last_s": last}


def phase(name: str, began: float, seconds: float | None, transaction: int) -> dict[str, Any]:
    return {"phase": name, "began": at(began), "seconds": seconds, "transaction": transaction}


def done(second: float, seconds: float, stages: list[dict[str, Any]]) -> dict[str, Any]:
    memory = {"sender": 64, "slots": 4, "slot_bytes": 16, "largest_tensor": 9}
    return {"kind": "publisher_done", "utc": at(second), "seconds": seconds, "stages": stages, "memory": memory}


TRANSACTIONS = [
    {"number": 1, "outcome": "finished", "began": at(1), "seconds": 3.0},
    {"number": 2, "outcome": "finished", "began": at(5), "seconds": 9.0},
    {"number": 3, "outcome": "failed", "began": at(20), "seconds": 20.0},
]
PHASES = [
    *(phase("pause", 1, 0.5, 1), phase("push.start", 2, 0.1, 1)),
    *(phase("push.finish", 3, 0.2, 1), phase("resume", 3.5, 0.5, 1)),
    *(phase("pause", 5, 0.5, 2), phase("push.start", 6, 0.25, 2)),
    *(phase("push.finish", 12, 0.5, 2), phase("resume", 13, 0.5, 2)),
    *(phase("pause", 20, 0.5, 3), phase("push.start", 21, None, 3)),
]
STAGES = [stage("read", 0.5, 4.5, 1.0), stage("hash", 0.5, 4.5, 2.0), stage("broadcast", 1.0, 5.5, 4.0)]
EVENTS = (done(3.2, 1.2, [stage("read", 0, 1, 1)]), done(12.5, 6.5, STAGES), done(30, 99, STAGES))


class Told:
    """Material of a run with these phases and events."""

    def __init__(self, phases: list[dict[str, Any]], events: tuple[dict[str, Any], ...]) -> None:
        self.events = events
        self._lifecycle = {"phases": phases, "transactions": TRANSACTIONS}

    def block(self, *keys: str) -> Any:
        return self._lifecycle if keys == ("lifecycle",) else {}


def told(phases: list[dict[str, Any]] = PHASES, events: tuple[dict[str, Any], ...] = EVENTS) -> Any:
    return Told(phases, events)


def test_the_longest_push_that_was_finished_is_shown_from_the_pause_on() -> None:
    push = longest_push(told())
    assert push is not None and (push.number, push.seconds, push.held) == (2, 6.5, 8.5)
    spans = [(bar.title, bar.start, bar.end) for bar in push.bars]
    assert spans == [
        ("requests held", 0.0, 8.5),
        ("start", 1.0, 1.25),
        ("read", 1.5, 5.5),
        ("hash", 1.5, 5.5),
        ("broadcast", 2.0, 6.5),
        ("finish", 7.0, 7.5),
    ]
    assert push.overlap == pytest.approx(7.0 / 5.0)
    assert [bar.rate for bar in push.bars][2:5] == [1000.0, 500.0, 250.0]


def test_a_push_without_a_pause_is_shown_from_its_start_on() -> None:
    phases = [one for one in PHASES if one["phase"] not in ("pause", "resume")]
    push = longest_push(told(phases))
    assert push is not None and push.held is None and push.bars[0].title == "start" and push.bars[0].start == 0.0


def test_a_run_that_told_no_stages_has_no_such_picture() -> None:
    assert longest_push(told(events=())) is None
    assert longest_push(told(phases=[])) is None


def test_of_what_the_publisher_said_the_last_word_is_read_and_the_rest_is_not(tmp_path: Path) -> None:
    kinds = ["publisher_progress", "http", "publisher_done", "lane", "publisher_http", "publisher_phase"]
    lines = [json.dumps({"utc": at(1), "kind": kind}) + "\n" for kind in kinds]
    (tmp_path / "events.jsonl").write_text("".join(lines) + '{"kind": "lane"')
    assert [event["kind"] for event in read_events(tmp_path / "events.jsonl", [])] == ["publisher_done", "lane"]


def test_the_page_shows_the_push_and_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    material: Material = read_material(ladder(tmp_path / "run"))
    before = draw(material)
    monkeypatch.setattr("vst.report.page.longest_push", lambda material: longest_push(told()))
    page = draw(material)
    assert "The longest push" not in before
    for text in ("transaction 2, took", "1.40 of its stages were at work", "4 buffers of", "server receives"):
        assert (text in page) is (text != "server receives")
