"""How often Tango's interval covers the true difference: ``python tests/bench/bench_interval.py [simulations]``.

Tables are drawn from given probabilities of a loss and of a gain; the share of intervals that hold the true difference
should be near the confidence. Printed beside it: the share of those that a plain interval of two separate accuracies
(Wald, unpaired) would cover, and both mean widths.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy.stats import norm

from vst.evals.statistics import Table, score_interval

CONFIDENCE = 0.95
CASES = [
    (n, lost, gained)
    for n in (64, 200, 1319)
    for lost, gained in ((0.0, 0.0), (0.01, 0.01), (0.02, 0.0), (0.05, 0.05), (0.1, 0.05), (0.3, 0.2))
]


def unpaired(table: Table) -> tuple[float, float]:
    first, second = table.both + table.lost, table.both + table.gained
    at = (second - first) / table.n
    spread = sum(k / table.n * (1 - k / table.n) / table.n for k in (first, second))
    reach = float(norm.ppf((1 + CONFIDENCE) / 2)) * math.sqrt(spread)
    return at - reach, at + reach


def main() -> None:
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    rng = np.random.default_rng(20260101)
    print(f"{simulations} tables a line, confidence {CONFIDENCE}")
    print("    n   lost  gained  covered  mean width   unpaired: covered  mean width")
    for n, lost, gained in CASES:
        rest = 1 - lost - gained
        drawn = rng.multinomial(n, [rest * 0.6, lost, gained, rest * 0.4], size=simulations)
        known: dict[tuple[int, ...], tuple[float, float]] = {}
        hits, widths, other_hits, other_widths = 0, 0.0, 0, 0.0
        for counts in map(tuple, drawn.tolist()):
            table = Table(*counts)
            key = (table.discordant, table.lost)
            low, high = known.setdefault(key, score_interval(table, CONFIDENCE))
            hits += low <= gained - lost <= high
            widths += high - low
            low, high = unpaired(table)
            other_hits += low <= gained - lost <= high
            other_widths += high - low
        told = f"{hits / simulations:7.3f} {widths / simulations:11.4f} {other_hits / simulations:19.3f}"
        print(f"{n:5} {lost:6.2f} {gained:7.2f} {told} {other_widths / simulations:11.4f}", flush=True)


if __name__ == "__main__":
    main()
