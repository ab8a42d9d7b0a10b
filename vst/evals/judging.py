"""Whether two evaluations are those of one model: by their records where answers repeat exactly, else by statistics.

Where a repeat of one unchanged state gave the same texts, every record must be equal. Where it did not, two accuracies
say little; the paired outcomes are judged by McNemar's exact test and by Tango's interval for their difference, which
has to lie inside the declared margin. A sample that cannot decide is inconclusive.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vst.evals.compare import Comparison
from vst.evals.statistics import mcnemar, score_interval, smallest_effect
from vst.verdict import Outcome

LISTED = 8


@dataclass(frozen=True)
class Rules:
    """How pairs are judged: the level of the test, the largest difference of accuracy that counts as none, the power
    that the smallest effect is told for, and which reading of an answer counts.
    """

    alpha: float
    margin: float
    power: float
    extraction: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Floor:
    """The noise of one unchanged state, from a repeat: how many texts differed, and how many changed correctness."""

    questions: int
    texts: int
    correctness: int

    @property
    def churn(self) -> float:
        return self.correctness / self.questions if self.questions else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_floor(repeat: Comparison) -> Floor:
    counts = repeat.counts()
    return Floor(counts["questions"], counts["texts_differ"], counts["correctness_differs"])


def statistics(found: Comparison, floor: Floor | None, rules: Rules) -> dict[str, Any]:
    """All that is said of the pairs as numbers; accuracies are beside the point and told last."""
    table = found.table
    interval = score_interval(table, 1 - rules.alpha)
    churn = floor.churn if floor is not None else 0.0
    effect = smallest_effect(table.n, churn, rules.alpha, rules.power)
    right = [side.right(rules.extraction) for side in (found.left, found.right)]
    return {
        **table.to_json(),
        "mcnemar_p": mcnemar(table),
        "interval": [round(end, 9) for end in interval],
        "confidence": 1 - rules.alpha,
        "interval_method": "Tango 1998, score",
        "margin": rules.margin,
        "smallest_effect": None if effect is None else round(effect, 6),
        "power": rules.power,
        "accuracy": [round(count / table.n, 6) if table.n else None for count in right],
    }


def judge_records(found: Comparison, floor: Floor | None, rules: Rules) -> tuple[Outcome, str]:
    """Whether ``right`` is ``left`` again; ``floor`` None where no repeat was taken."""
    differing = found.differing
    if not found.left.records:
        return Outcome.INCONCLUSIVE, "no question was asked"
    if not differing:
        return Outcome.PASS, ""
    if floor is not None and not floor.texts:
        return Outcome.FAIL, f"{listed(found)}; a repeat of one state gave the same texts, so all must be equal"
    outcome, reason = judge_pairs(found, rules)
    if outcome is Outcome.PASS and floor is None:
        return Outcome.INCONCLUSIVE, f"{listed(found)}; no repeat was given, so whether that is noise is not known"
    return outcome, reason and f"{listed(found)}; {reason}"


def judge_pairs(found: Comparison, rules: Rules) -> tuple[Outcome, str]:
    """The paired outcomes alone: ``fail`` for a significant change, ``pass`` for one shown to be within the margin."""
    table, p = found.table, mcnemar(found.table)
    low, high = score_interval(table, 1 - rules.alpha)
    told = f"{table.lost} lost and {table.gained} gained of {table.n}, difference between {low:+.4f} and {high:+.4f}"
    if p < rules.alpha:
        return Outcome.FAIL, f"correctness changed: {told}, McNemar's exact p = {p:.3g}"
    if -rules.margin < low and high < rules.margin:
        return Outcome.PASS, ""
    return Outcome.INCONCLUSIVE, f"{told}: too wide for the margin of {rules.margin:g}, the sample cannot decide"


def listed(found: Comparison) -> str:
    """Which records differ, the first few by number and with both texts of the first."""
    differing = found.differing
    numbers = ", ".join(str(pair.left.index) for pair in differing[:LISTED])
    more = f" and {len(differing) - LISTED} more" if len(differing) > LISTED else ""
    first = differing[0]
    texts = [(r.text if r.answered else r.error) or "" for r in (first.left, first.right)]
    shown = f"question {first.left.index}: expected {texts[0][:120]!r}, found {texts[1][:120]!r}"
    return f"{len(differing)} of {len(found.left.records)} records differ ({numbers}{more}); {shown}"
