"""Where marks lie in a picture: round ticks of an axis, logarithmic stems, a line of numbers; pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vst.report.differences import Comparison

LEFT, WIDTH, HEIGHT = 76, 915, 170
LINE_LEFT, LINE_WIDTH, LINE_HEIGHT = 76, 900, 120


@dataclass(frozen=True)
class Stems:
    """The picture of one comparison: marked heights, a path for each level, the height of the noise floor."""

    marks: tuple[tuple[str, float], ...]
    paths: tuple[tuple[str, str], ...]
    floor: float | None


@dataclass(frozen=True)
class Series:
    """A line of numbers with a point for each, and the words for its first and last point."""

    marks: tuple[tuple[str, float], ...]
    path: str
    points: tuple[tuple[float, float, str, bool], ...]
    first: str
    last: str


def ticks(largest: float, about: int = 8) -> list[float]:
    """Round numbers from 0 up to ``largest``."""
    step = 10.0 ** math.floor(math.log10(max(largest, 1e-3) / about))
    step = next(step * factor for factor in (1, 2, 5, 10) if largest / (step * factor) <= about)
    return [round(number * step, 6) for number in range(int(largest / step) + 1)]


def stems(row: Comparison) -> Stems:
    """Differences on a logarithmic scale from the smallest one that is not zero."""
    known = [value for column in row.columns if (value := column.apart) and math.isfinite(value)]
    low = math.floor(math.log10(min([*known, row.floor or math.inf, 1.0])))
    high = max(math.ceil(math.log10(max([*known, 1e-9]))), low + 1)
    step = max(1, (high - low) // 5)

    def height(value: float) -> float:
        return round(HEIGHT - (math.log10(value) - low) / (high - low) * (HEIGHT - 8), 1)

    paths: dict[str, list[str]] = {}
    cell = WIDTH / max(len(row.columns), 1)
    for number, column in enumerate(row.columns):
        if column.apart != 0.0:
            top = 8.0 if column.apart is None else height(column.apart)
            x = round(LEFT + (number + 0.5) * cell, 1)
            paths.setdefault(row.level(column), []).append(f"M{x} {HEIGHT}V{top}")
    return Stems(
        marks=tuple((f"{10.0**power:.0e}" if power < -2 else f"{10.0**power:g}", height(10.0**power))
                    for power in range(low, high + 1, step)),
        paths=tuple((level, "".join(path)) for level, path in paths.items()),
        floor=height(row.floor) if row.floor else None,
    )  # fmt: skip


def series(values: Sequence[tuple[str, float, bool]], unit: str = "") -> Series | None:
    """A line through labelled values; ``bool`` is whether the point is good. None with fewer than two."""
    finite = [one for one in values if math.isfinite(one[1])]
    if len(finite) < 2:
        return None
    low, high = min(value for _, value, _ in finite), max(value for _, value, _ in finite)
    spread = (high - low) or max(abs(high), 1.0) * 0.1
    points = []
    for number, (label, value, good) in enumerate(finite):
        x = round(LINE_LEFT + LINE_WIDTH * number / (len(finite) - 1), 1)
        y = round(8 + (LINE_HEIGHT - 16) * (1 - (value - low) / spread), 1)
        points.append((x, y, f"{label}: {value:.6g}{unit}", good))
    path = "M" + "L".join(f"{x} {y}" for x, y, _, _ in points)
    bottom = round(8.0 + (LINE_HEIGHT - 16) * (1 - 0.0), 1)
    marks = (
        ((f"{high:.4g}{unit}", 8.0), (f"{low:.4g}{unit}", bottom)) if high > low else ((f"{low:.4g}{unit}", bottom),)
    )
    return Series(marks, path, tuple(points), finite[0][0], finite[-1][0])
