"""The page of one run, drawn from its material: ``report.html``, one file without a request to anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import vst
from vst.checklist.evidence import from_material
from vst.checklist.judge import judge
from vst.report.claims import claim
from vst.report.coverage import families
from vst.report.differences import LEVEL_TEXT, LEVELS, Comparison, comparisons
from vst.report.endurance import endurance
from vst.report.extras import extras
from vst.report.facts import blocks, subject
from vst.report.material import Material
from vst.report.pushes import longest_push
from vst.report.quality import quality
from vst.report.scales import stems, ticks
from vst.report.summary import Summary, summarise
from vst.report.templating import environment
from vst.report.timeline import STATES, Timeline, timeline

MAX_ROWS = 60


@dataclass(frozen=True)
class ShownCheck:
    """One check as the table shows it."""

    id: str
    outcome: str
    claim: str
    observed: Any
    expected: Any
    tolerance: Any
    reason: str
    evidence: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ShownLane:
    """One lane as the page shows it."""

    name: str
    verdict: str
    checks: tuple[ShownCheck, ...]

    @property
    def passed(self) -> int:
        return sum(check.outcome == "pass" for check in self.checks)


def draw(material: Material, base: str = "", notice: str = "") -> str:
    """The page as HTML; ``base`` is put before links to files, ``notice`` says something about the bundle itself."""
    head, time = summarise(material), timeline(material)
    floor = material.verdict.get("noise_floor")
    compared = shown_rows(comparisons(material.records, floor))
    detail = next((one for one in compared if not one.as_expected and not one.must_differ), None)
    more = extras(material)
    rows = judge([from_material(material)])
    values: dict[str, Any] = {
        "head": head, "tone": tone(head), "started": _started(material.started),  "base": base,
        "subject": subject(material), "time": time, "ticks": ticks(time.seconds) if time else (),
        "push": longest_push(material),
        "states": _states(time), "lanes": [_lane(lane) for lane in material.lanes()], "floor": floor,
        "comparisons": compared, "detail": detail, "scale": stems(detail) if detail else None,
        "levels": [(level, LEVEL_TEXT[level]) for level in LEVELS], "families": families(material),
        "covered": material.verdict.get("covered"), "extras": more,
        "quality": quality(material), "endurance": endurance(material), "servers": _servers(head),
        "rows": rows, "blocks": list(blocks(material)),
        "files": material.files, "known": material.by_name, "omitted": material.omitted, "anchor": anchor,
         "version": vst.__version__,  "notice": notice,
    }  # fmt: skip
    return environment().get_template("run.html.j2").render(**values, sections=list(_sections(values)))


def _started(utc: str) -> str:
    return f"{utc[:10]} {utc[11:16]} UTC" if utc else "at an unknown time"


def _servers(head: Summary) -> list[Any]:
    """Each of several servers; one alone is told by the head itself."""
    found = head.server.get("servers")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def tone(head: Summary) -> str:
    """Which of the page's two colours the verdict gets; neither when there is none."""
    return {"PASS": "pass", "FAIL_CLOSED": "fail"}.get(head.word, "none")


def shown_rows(found: list[Comparison]) -> list[Comparison]:
    """What the picture has room for: first everything that is not as it must be."""
    if len(found) <= MAX_ROWS:
        return found
    bad = [one for one in found if not one.as_expected]
    return [*bad, *(one for one in found if one.as_expected)][:MAX_ROWS]


def anchor(lane: str, id: str) -> str:
    """The name of a check within the page."""
    return "check-" + re.sub(r"[^A-Za-z0-9_.-]", "-", f"{lane}-{id}")


def _states(time: Timeline | None) -> list[str]:
    seen = {span.kind for span in time.states} if time else set()
    return [state for state in STATES if state in seen]


def _sections(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "claims", "Proven or not"
    for key, id, title in (
        ("lanes", "ladder", "Checks"),
        ("time", "time", "Time"),
        ("comparisons", "answers", "Answers"),
        ("families", "coverage", "Coverage"),
        ("quality", "quality", "Quality"),
        ("endurance", "endurance", "Over the cycles"),
    ):
        if values[key]:
            yield id, title
    for extra in values["extras"]:
        yield extra.id, extra.short
    yield from (("checklist", "Checklist"), ("facts", "Inputs and machine"), ("verify", "Check it yourself"))


def _lane(lane: Mapping[str, Any]) -> ShownLane:
    checks = tuple(_check(check) for check in lane.get("checks", ()))
    return ShownLane(str(lane.get("lane")), str(lane.get("verdict")), checks)


def _check(check: Mapping[str, Any]) -> ShownCheck:
    id = str(check.get("id"))
    return ShownCheck(
        id=id,
        outcome=str(check.get("outcome")),
        claim=claim(id),
        observed=check.get("observed"),
        expected=check.get("expected"),
        tolerance=check.get("tolerance"),
        reason=str(check.get("reason") or ""),
        evidence=str(check.get("evidence") or ""),
        warnings=tuple(map(str, check.get("warnings") or ())),
    )
