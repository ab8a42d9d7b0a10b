"""Statistics of paired yes/no outcomes: the exact McNemar test, Tango's score interval, the smallest effect to be seen.

A table counts questions by two runs: right in both, right in the first only (lost), right in the second only (gained),
right in neither. The difference is that of the second run's accuracy to the first's: (gained − lost) / n.

Written here and not taken from scipy: neither scipy nor statsmodels has an interval for a paired difference, and the
rest is integers and the normal quantile, which Python's standard library has. The tests compare with scipy and
statsmodels.

Sources: McNemar 1947 in its exact form (sign test on the discordant pairs); T. Tango, "Equivalence test and confidence
interval for the difference in proportions for the paired-sample design", Statistics in Medicine 17 (1998) 891–908.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

BISECTIONS = 60
EFFECT_STEPS = 24
NEGLIGIBLE = 1e-10


@dataclass(frozen=True)
class Table:
    """The counts of the four outcomes of a pair."""

    both: int
    lost: int
    gained: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.lost + self.gained + self.neither

    @property
    def discordant(self) -> int:
        return self.lost + self.gained

    @property
    def difference(self) -> float | None:
        """The change of accuracy, from −1 to 1; None without a question."""
        return (self.gained - self.lost) / self.n if self.n else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "n": self.n, "difference": self.difference}


def mcnemar(table: Table) -> float:
    """The two-sided exact p-value: how likely so uneven a split of the discordant pairs is if both ways are equal.

    1 where no pair is discordant: such a table says nothing against equality.
    """
    total, less = table.discordant, min(table.lost, table.gained)
    ways = tail = 1
    for k in range(less):
        ways = ways * (total - k) // (k + 1)
        tail += ways
    return min(1.0, float(2 * tail / (1 << total))) if total < 1000 else _mcnemar_long(total, tail)


def _mcnemar_long(total: int, tail: int) -> float:
    """The same for counts whose powers of two no longer fit a float."""
    shift = max(0, tail.bit_length() - 64)
    return min(1.0, math.ldexp(float(tail >> shift), shift + 1 - total))


def score_interval(table: Table, confidence: float) -> tuple[float, float]:
    """Tango's score interval for the difference at a two-sided ``confidence``; (−1, 1) without a question."""
    if not table.n:
        return -1.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    at = (table.gained - table.lost) / table.n
    low = -1.0 if at <= -1 else _bound(table, z, at, -1.0)
    return low, 1.0 if at >= 1 else _bound(table, -z, at, 1.0)


def _bound(table: Table, z: float, inside: float, outside: float) -> float:
    """Where the score reaches ``z``, between the observed difference, where it is 0, and the end of the scale."""
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        if abs(score(table, middle)) < abs(z):
            inside = middle
        else:
            outside = middle
    return (inside + outside) / 2


def score(table: Table, delta: float) -> float:
    """Tango's score statistic for a true difference of ``delta``, standard normal if that is so (formula 5)."""
    n, gained, lost = table.n, table.gained, table.lost
    a = 2 * n
    b = -gained - lost + (2 * n - gained + lost) * delta
    c = -lost * delta * (1 - delta)
    fewer = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * fewer + delta * (1 - delta))
    distance = gained - lost - n * delta
    if variance <= 0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def power(n: int, churn: float, effect: float, alpha: float) -> float:
    """How often McNemar's exact test sees a loss of ``effect`` in ``n`` questions.

    ``churn`` is the share of questions whose correctness changes by noise, as often one way as the other.
    """
    import numpy as np

    lost, gained = churn / 2 + effect, churn / 2
    discordant = lost + gained
    if not n or discordant <= 0:
        return 0.0
    if discordant > 1:
        raise ValueError(f"churn {churn} and effect {effect} are together more than all questions")
    totals = np.exp(_log_binomial(n, discordant))
    seen = 0.0
    for total in np.flatnonzero(totals > NEGLIGIBLE).tolist():
        fewest = _critical(total, alpha)
        if fewest is not None:
            seen += float(totals[total] * np.exp(_log_binomial(total, lost / discordant))[fewest:].sum())
    return min(1.0, seen)


@cache
def _critical(total: int, alpha: float) -> int | None:
    """The fewest losses among ``total`` discordant pairs that are significant; None where not even all are."""
    import numpy as np

    tails = 2 * np.cumsum(np.exp(_log_binomial(total, 0.5)))
    significant = int(np.count_nonzero(tails[: total // 2 + 1] < alpha))
    return total - significant + 1 if significant else None


def _log_binomial(n: int, p: float) -> Any:
    """The logarithms of the binomial probabilities of 0 … n."""
    import numpy as np

    k = np.arange(n + 1)
    if p <= 0 or p >= 1:
        return np.where(k == (n if p >= 1 else 0), 0.0, -np.inf)
    return _log_ways(n) + k * math.log(p) + (n - k) * math.log1p(-p)


@cache
def _log_ways(n: int) -> Any:
    """The logarithms of the binomial coefficients of ``n``."""
    import numpy as np

    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return logs[n] - logs - logs[::-1]


def smallest_effect(n: int, churn: float, alpha: float, wanted: float) -> float | None:
    """The smallest loss of accuracy that this sample shows with probability ``wanted``; None where no loss would be.

    The least that any test could promise: it holds when the flips that are not noise all go one way.
    """
    low, high = 0.0, 1.0 - churn
    if power(n, churn, high, alpha) < wanted:
        return None
    for _ in range(EFFECT_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if power(n, churn, middle, alpha) >= wanted else (middle, high)
    return high
