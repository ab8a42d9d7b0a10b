"""``python -m vst.report DIR``: draw the page of a run or of a sweep again, from its files alone.

A run directory is sealed, so its page is written beside it; what the run itself drew is compared with it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vst.cluster.sweep import NAME, Sweep
from vst.errors import ConfigError
from vst.harmless import visible
from vst.provenance.atomic import write_atomic
from vst.provenance.rundir import DRAWN
from vst.provenance.verify import verify
from vst.report.files import encoded
from vst.report.material import read_material
from vst.report.page import draw
from vst.report.sweep_page import write_sweep_files
from vst.verdict import EXIT_CODES, EXIT_CONFIG, EXIT_PASS, Outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 10 when the bundle does not hold or its own page is another one; 2 for another directory."""
    parser = argparse.ArgumentParser(prog="python -m vst.report", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="of a run or of a sweep")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the page of a run goes (default: DIR.html)")
    given = parser.parse_args(argv)
    path = given.directory.expanduser().absolute()
    try:
        if (path / NAME).is_file():
            print(f"drawn: {write_sweep_files(Sweep.read(path))}")
            return EXIT_PASS
        return draw_run(path, given.output or path.with_name(f"{path.name}.html"))
    except (ConfigError, OSError) as error:
        print(f"vst.report: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG


def draw_run(path: Path, output: Path) -> int:
    """Draw the page of a run to ``output``, with a notice on it when the bundle does not hold."""
    if output.absolute().is_relative_to(path):
        raise ConfigError(f"{output} is inside of the run, which is sealed: give --output another directory")
    material = read_material(path)
    problems = _problems(path)
    base = f"{os.path.relpath(path, output.absolute().parent)}/"
    write_atomic(output.absolute(), encoded(draw(material, base, "; ".join(problems))))
    print(f"drawn: {visible(output)}")
    stored = path / DRAWN[0]
    if not problems and stored.is_file() and stored.read_bytes() != encoded(draw(material)):
        problems = [f"{DRAWN[0]} of the run is another page: it was drawn by another version of vst, or edited"]
    for problem in problems:
        print(f"  {visible(problem)}")
    return EXIT_CODES[Outcome.FAIL] if problems else EXIT_PASS


def _problems(path: Path) -> list[str]:
    found = verify(path)
    if found.findings:
        return [f"The bundle does not hold: {found.findings[0]}. Do not believe what follows."]
    return [f"This run is incomplete: {found.incomplete}."] if found.incomplete else []


if __name__ == "__main__":
    sys.exit(main())
