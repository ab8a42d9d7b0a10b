"""``python tests/report/picture.py RUN_DIR FILE.png``: the picture of a run's page that the README shows."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

WIDTH, HEIGHT, COLOURS = 1120, 1092, 48


def main(arguments: list[str]) -> int:
    """Take the picture and reduce it to few colours; 1 when there is no browser to take it with."""
    from PIL import Image

    from report.browser import chromium, install

    if problem := install():
        print(problem, file=sys.stderr)
        return 1
    page, picture = Path(arguments[0]) / "report.html", Path(arguments[1])
    with chromium() as browser:
        browser.show(page, WIDTH, HEIGHT)
        browser.screenshot(picture, HEIGHT)
    with Image.open(picture) as taken:
        reduced = taken.convert("RGB").quantize(COLOURS)
    reduced.save(picture, optimize=True)
    print(f"{picture}: {picture.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
