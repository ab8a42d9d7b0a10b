"""Judging the evaluations of a run again: answers are read out of the stored texts anew, then compared and judged.

Like ``vst.provenance.rejudge`` this stands above the lanes. What a check saw of the server alone, its generation
defaults and what it drafted, is taken from the check itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from vst.errors import VerificationError
from vst.evals.compare import Comparison
from vst.evals.judging import Floor, Rules
from vst.evals.store import Evaluation, parse_evaluation
from vst.lanes import eval_checks
from vst.lanes.drafts import acceptance_check
from vst.lanes.quality import (
    STATES,
    comparable_check,
    comparison_file,
    comparisons,
    each_seat,
    seat_pairs,
    wanted_of,
)
from vst.lanes.seats import EACH
from vst.provenance.bundle import Bundle
from vst.server.seats import seat_titles
from vst.verdict import Check

Stored = Mapping[str, Any]
PREFIX, SUFFIX = "evaluation-", ".jsonl"


class EvaluationJudge:
    """The evaluations of one run, read when they are needed, and the rules that they were judged by."""

    def __init__(self, bundle: Bundle, config: Mapping[str, Any]) -> None:
        self._bundle = bundle
        self._conf: Mapping[str, Any] = config.get("eval") or {}
        self._titles = seat_titles(config.get("server") or {})
        self._wanted = wanted_of(len(self._titles))
        self._judges: dict[str, Callable[[str, Stored], Check]] = {
            "eval.complete": self._complete,
            "eval.pinned": self._pinned,
            "eval.comparable": lambda lane, stored: comparable_check(self._taken),
            "eval.distinct": lambda lane, stored: eval_checks.distinct_check(self._pairs.get("eval.distinct")),
            "eval.records": lambda lane, stored: self._records("eval.records"),
            "eval.reference": lambda lane, stored: self._records("eval.reference"),
            "eval.paired": self._paired,
            "draft.acceptance": lambda lane, stored: self._drafts(stored),
            EACH: lambda lane, stored: self._each(),
        }

    def judges(self, name: str) -> bool:
        return name in self._judges

    def again(self, lane: str, name: str, stored: Stored) -> Check | None:
        """The check as it comes out now; None for one that was refused before anything was asked."""
        asked = bool(self._taken) or name == "draft.acceptance"
        return self._judges[name](lane, stored) if asked and stored["observed"] is not None else None

    @cached_property
    def _taken(self) -> dict[str, Evaluation]:
        """In the order in which they were taken: the first that is not whole is the one that is named."""
        files = {name: f"{PREFIX}{name}{SUFFIX}" for name in ("reference", *self._wanted[:-1], "eval")}
        return {name: self._evaluation(file) for name, file in files.items() if file in self._bundle.files}

    def _evaluation(self, name: str) -> Evaluation:
        found = parse_evaluation(self._bundle.read(name))
        stops = tuple(found.plan["sampling"].get("stop") or found.plan["sampling"].get("until") or ())
        records = tuple(record.read(stops) for record in found.records)
        for before, now in zip(found.records, records, strict=True):
            if (before.strict, before.flexible) != (now.strict, now.flexible):
                told = f"{before.strict} and {before.flexible}, read again it is {now.strict} and {now.flexible}"
                raise VerificationError(f"{name}: question {before.index} is said to be {told}")
        return replace(found, records=records)

    @cached_property
    def _rules(self) -> Rules:
        conf = self._conf
        return Rules(float(conf["alpha"]), float(conf["margin"]), float(conf["power"]), str(conf["extraction"]))

    @cached_property
    def _pairs(self) -> dict[str, Comparison]:
        return comparisons(self._taken, self._rules.extraction)

    @property
    def _floor(self) -> Floor | None:
        return eval_checks.floor_of(self._pairs.get("repeat"))

    def _complete(self, lane: str, stored: Stored) -> Check:
        wanted = ("eval",) if lane == "eval" else self._wanted
        return eval_checks.complete_check(self._taken, wanted)

    def _pinned(self, lane: str, stored: Stored) -> Check:
        observed = stored["observed"]
        defaults = {"chat_template": observed["chat_template"], "sampling": observed["server_defaults"]}
        first = "eval" if lane == "eval" else STATES[0]
        plan = (self._taken.get(first) or next(iter(self._taken.values()))).plan
        return eval_checks.pinned_check(self._taken, plan, defaults)

    def _records(self, name: str) -> Check:
        found = self._pairs.get(name)
        return eval_checks.records_check(name, found, self._floor, self._rules, comparison_file(name))

    def _each(self) -> Check:
        pairs = seat_pairs(self._taken, len(self._titles), self._rules.extraction)
        return each_seat(self._titles, pairs, self._floor, self._rules)[0]

    def _paired(self, lane: str, stored: Stored) -> Check:
        gates = {name: pair for name, pair in self._pairs.items() if name in ("eval.records", "eval.reference")}
        return eval_checks.paired_check(gates, self._pairs.get("shift"), self._floor, self._rules)

    def _drafts(self, stored: Stored) -> Check:
        """From what was counted; a count of an evaluation must be the one in its file."""
        for one in stored["observed"]["arrivals"]:
            name = str(one["state"]).removeprefix(PREFIX)
            if str(one["state"]).startswith(PREFIX) and one["found"] != self._taken[name].drafted:
                raise VerificationError(f"{name} is said to have drafted {one['found']}, its file says otherwise")
        return acceptance_check(stored["observed"], float(self._conf["draft_margin"]))
