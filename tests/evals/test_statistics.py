"""The statistics against scipy, statsmodels and formulas that are solved in another way, over grids of tables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import binom, binomtest, norm
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from vst.evals.statistics import Table, mcnemar, power, score, score_interval, smallest_effect

COUNTS = (0, 1, 2, 5, 9, 40, 333)
GRID = [Table(*counts) for counts in itertools.product((0, 3, 200), COUNTS, COUNTS, (0, 7, 500)) if sum(counts)]


def test_mcnemar_equals_scipys_and_statsmodels_exact_test_on_every_table() -> None:
    assert len(GRID) > 400
    for table in GRID:
        if table.discordant:
            expected = binomtest(table.lost, table.discordant).pvalue
            cells = np.array([[table.both, table.lost], [table.gained, table.neither]])
            assert mcnemar(table) == pytest.approx(float(expected), rel=1e-9, abs=1e-300)
            second = float(statsmodels_mcnemar(cells, exact=True).pvalue)
            assert mcnemar(table) == pytest.approx(second, rel=1e-9, abs=1e-300)
        else:
            assert mcnemar(table) == 1.0


@pytest.mark.parametrize(("lost", "gained"), [(600, 500), (6000, 5800), (1500, 1500), (3000, 1000)])
def test_mcnemar_holds_for_counts_that_no_power_of_two_fits_a_float(lost: int, gained: int) -> None:
    expected = binomtest(lost, lost + gained).pvalue
    assert mcnemar(Table(0, lost, gained, 0)) == pytest.approx(float(expected), rel=1e-6, abs=1e-300)


def constrained_score(table: Table, delta: float) -> float:
    """Tango's score by the likelihood itself: the probability of a loss is found by maximising it under ``delta``.

    With p(lost) = q and p(gained) = q + delta the log-likelihood is gained·log(q + delta) + lost·log(q) +
    rest·log(1 − 2q − delta); the variance of (gained − lost) is then n (2q + delta − delta²).
    """
    n, rest = table.n, table.both + table.neither
    low, high = max(0.0, -delta), (1 - delta) / 2

    def minus(q: float) -> float:
        parts = ((table.gained, q + delta), (table.lost, q), (rest, 1 - 2 * q - delta))
        return -sum(count * math.log(max(p, 1e-300)) for count, p in parts if count)

    q = float(optimize.minimize_scalar(minus, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x)
    variance = max(n * (2 * q + delta - delta * delta), 1e-12)
    return (table.gained - table.lost - n * delta) / math.sqrt(variance)


SMALL = [table for table in GRID if table.n > 4][::5]


@pytest.mark.parametrize("delta", [-0.6, -0.11, 0.03, 0.4])
def test_the_score_equals_the_one_from_a_maximised_likelihood(delta: float) -> None:
    for table in SMALL:
        assert score(table, delta) == pytest.approx(constrained_score(table, delta), rel=2e-3, abs=2e-3), table


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_interval_ends_where_the_score_is_the_normal_quantile(confidence: float) -> None:
    z = float(norm.ppf((1 + confidence) / 2))
    for table in GRID:
        low, high = score_interval(table, confidence)
        at = table.difference
        assert at is not None and -1 <= low <= at <= high <= 1
        if low > -1 and at < 1:
            assert score(table, low) == pytest.approx(z, abs=1e-5)
        if high < 1 and at > -1:
            assert score(table, high) == pytest.approx(-z, abs=1e-5)


def test_an_interval_found_by_another_root_finder_has_the_same_ends() -> None:
    z = float(norm.ppf(0.975))
    for table in SMALL[:40]:
        low, high = score_interval(table, 0.95)
        at = (table.gained - table.lost) / table.n
        if -1 < low < at:
            found = optimize.brentq(lambda d, t=table: constrained_score(t, d) - z, (low - 1) / 2, at, xtol=1e-10)
            assert low == pytest.approx(found, abs=1e-4)
        if at < high < 1:
            found = optimize.brentq(lambda d, t=table: constrained_score(t, d) + z, at, (high + 1) / 2, xtol=1e-10)
            assert high == pytest.approx(found, abs=1e-4)


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (5, 0, 0, 0), (0, 0, 0, 64), (0, 4, 0, 0), (0, 0, 4, 0)])
def test_empty_and_one_sided_tables_divide_by_nothing(counts: tuple[int, int, int, int]) -> None:
    table = Table(*counts)
    low, high = score_interval(table, 0.95)
    assert -1 <= low <= high <= 1 and 0 <= mcnemar(table) <= 1
    assert table.n == 0 or high > low


def exact_power(n: int, churn: float, effect: float, alpha: float) -> float:
    """The same power, by going through every table."""
    lost, gained, total = churn / 2 + effect, churn / 2, 0.0
    for m in range(1, n + 1):
        for b in range(m + 1):
            if b > m - b and binomtest(b, m).pvalue < alpha:
                total += binom.pmf(m, n, lost + gained) * binom.pmf(b, m, lost / (lost + gained))
    return total


@pytest.mark.parametrize("n", [6, 20, 45])
@pytest.mark.parametrize(("churn", "effect"), [(0.0, 0.3), (0.1, 0.2), (0.3, 0.05), (0.0, 1.0)])
def test_the_power_equals_a_walk_through_every_table(n: int, churn: float, effect: float) -> None:
    assert power(n, churn, effect, 0.05) == pytest.approx(exact_power(n, churn, effect, 0.05), abs=1e-7)


def test_the_smallest_effect_is_where_the_power_is_reached() -> None:
    for n, churn in ((30, 0.0), (64, 0.0), (200, 0.1), (1319, 0.05)):
        effect = smallest_effect(n, churn, 0.05, 0.8)
        assert effect is not None
        assert power(n, churn, effect, 0.05) >= 0.8 > power(n, churn, effect * 0.99, 0.05)


def test_a_sample_that_could_show_nothing_has_no_smallest_effect() -> None:
    assert smallest_effect(0, 0.0, 0.05, 0.8) is None
    assert smallest_effect(5, 0.0, 0.05, 0.8) is None
    assert smallest_effect(6, 0.0, 0.05, 0.8) is not None


def test_more_churn_hides_larger_effects() -> None:
    effects = [smallest_effect(500, churn, 0.05, 0.8) for churn in (0.0, 0.02, 0.1, 0.4)]
    assert effects == sorted(effect for effect in effects if effect is not None)
