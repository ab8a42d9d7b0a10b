"""The head of a page: the verdict and its cause in one sentence, what was proven and what was not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vst.report.claims import claim, lane_claim
from vst.report.material import Material
from vst.verdict import CAUSES, EXIT_INTERRUPTED

CAUSE_WORDS = {
    "fail": "a property is false",
    "error": "the tool, a process or the network broke",
    "refused": "refused: a precondition is not met",
    "inconclusive": "the evidence cannot decide",
}
NO_VERDICT = "This run left no verdict: it is still going on, or it was killed. Nothing is proven."
LADDER = ("L0", "L1", "L2", "L3", "L4", "L5", "L6")
LONGEST = 260


@dataclass(frozen=True)
class Claim:
    """One line under proven or not proven: what, and why not or from what."""

    what: str
    detail: str = ""
    outcome: str = "pass"


@dataclass(frozen=True)
class Difference:
    """The first place at which answers differ, with the values as text."""

    probe: str
    where: str
    position: str
    observed: str
    expected: str


@dataclass(frozen=True)
class Summary:
    """What stands above the fold."""

    word: str
    sentence: str
    lane: str
    exit_code: str
    failing: Mapping[str, Any] | None
    failing_lane: str
    difference: Difference | None
    server: Mapping[str, Any]
    proven: tuple[Claim, ...]
    unproven: tuple[Claim, ...]


def summarise(material: Material) -> Summary:
    """The head of the page of one run."""
    verdict = material.verdict
    lane, failing = worst_check(material)
    server = verdict.get("server")
    return Summary(
        word=str(verdict.get("verdict", "NO VERDICT")),
        sentence=_sentence(material, lane, failing),
        lane=str(verdict.get("lane", "unknown")),
        exit_code=str(verdict.get("exit_code", "none")),
        failing=failing,
        failing_lane=lane,
        difference=first_difference(failing.get("observed")) if failing else None,
        server=server if isinstance(server, Mapping) else {},
        proven=tuple(_proven(material)),
        unproven=tuple(_unproven(material)),
    )


def worst_check(material: Material) -> tuple[str, Mapping[str, Any] | None]:
    """The first check with the worst outcome of the run, and its lane."""
    for cause in CAUSES:
        for lane, check in material.checks():
            if check.get("outcome") == cause.value:
                return lane, check
    return "", None


def _sentence(material: Material, lane: str, failing: Mapping[str, Any] | None) -> str:
    verdict = material.verdict
    if not verdict:
        return NO_VERDICT
    if verdict.get("interrupted"):
        how = "Interrupted" if verdict.get("exit_code") == EXIT_INTERRUPTED else "Terminated"
        done = [str(one.get("lane")) for one in material.lanes() if one.get("verdict") == "PASS"]
        reached = f"{', '.join(done)} had passed" if done else "no lane had passed"
        return f"{how} by a signal before the end: {reached}, nothing else is proven."
    if failing is None:
        return _all_held(material)
    said = str(failing.get("reason") or "").split("; first differing")[0]
    cause = CAUSE_WORDS.get(str(failing.get("outcome")), "it did not pass")
    return shorten(f"{failing.get('id')} in lane {lane} did not pass, {cause}{f': {said}' if said else ''}", LONGEST)


def _all_held(material: Material) -> str:
    outcomes = [check.get("outcome") for _, check in material.checks()]
    passed, declared = outcomes.count("pass"), outcomes.count("not_applicable")
    lanes = ", ".join(str(lane.get("lane")) for lane in material.lanes())
    if not passed:
        return "No check of this run was effective: nothing is proven."
    rest = f"; {declared} declared not applicable, listed below" if declared else ""
    return f"All {passed} checks of {lanes} passed{rest}."


def _proven(material: Material) -> Iterator[Claim]:
    for lane in material.lanes():
        name = str(lane.get("lane"))
        if lane.get("verdict") == "PASS":
            yield Claim(lane_claim(name) or f"Lane {name} passed.", name)
            continue
        for check in lane.get("checks", ()):
            if check.get("outcome") == "pass" and (text := claim(str(check.get("id")))):
                yield Claim(f"{text[0].upper()}{text[1:]}.", str(check.get("id")))


def _unproven(material: Material) -> Iterator[Claim]:
    """Worst first: what is false, then what could not be decided, then what was declared away or never asked."""
    order = [*(cause.value for cause in CAUSES), "not_applicable"]
    checks = [(lane, check) for lane, check in material.checks() if check.get("outcome") in order]
    for lane, check in sorted(checks, key=lambda one: order.index(one[1]["outcome"])):
        outcome = str(check.get("outcome"))
        text = claim(str(check.get("id"))) or "this property"
        reason = shorten(str(check.get("reason") or outcome), LONGEST)
        yield Claim(f"{check.get('id')} ({lane}): {text}", reason, outcome)
    covered = material.verdict.get("covered")
    if isinstance(covered, Mapping) and covered.get("tensor_share") != 1.0:
        text = f"Only {covered.get('tensors')} tensors were shown to be visible through the probes."
        yield Claim(text, "the others could be stale without being noticed", "not_applicable")
    yield from _not_reached(material)


def _not_reached(material: Material) -> Iterator[Claim]:
    ran = {str(lane.get("lane")) for lane in material.lanes()}
    missing = [name for name in LADDER if name not in ran]
    if ran & set(LADDER) and missing:
        yield Claim(f"{', '.join(missing)} did not run:", " ".join(map(lane_claim, missing)), "not_run")


def first_difference(observed: Any) -> Difference | None:
    """The first differing position in what a check observed: a difference, or a list of them with one that differs."""
    candidates = observed if isinstance(observed, list) else [observed]
    for one in candidates:
        first = one.get("first") if isinstance(one, Mapping) and not one.get("equal") else None
        if isinstance(first, Mapping) and "probe" in first:
            values = (_number(first.get(key)) for key in ("observed", "expected"))
            return Difference(str(first.get("probe")), str(first.get("where")), str(first.get("position")), *values)
    return None


def _number(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"token {value.get('token')}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def shorten(text: str, longest: int) -> str:
    """The text in one line of at most ``longest`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
