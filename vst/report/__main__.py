"""``python -m vst.report DIR``: draw the page of a run or of a sweep again, from its files alone.

``python -m vst.report issue DIR``: the fault that a run of lane diagnose found, as a report for vLLM's developers.

``python -m vst.report matrix DIR… --output FILE.json``: many runs over many models as one table, its page beside it.

A run directory is sealed, so its page is written beside it; what the run itself drew is compared with it.
"""

from __future__ import annotations

import argparse
import json
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
from vst.report.issue import issue
from vst.report.material import read_material
from vst.report.matrix import matrix
from vst.report.matrix_page import page
from vst.report.page import draw
from vst.report.sweep_page import write_sweep_files
from vst.verdict import EXIT_CODES, EXIT_CONFIG, EXIT_PASS, Outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 10 when the bundle does not hold or its own page is another one; 2 for another directory."""
    parser = argparse.ArgumentParser(prog="python -m vst.report", description=__doc__)
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["issue"] and len(words) > 1:
        return write_issue(words[1:])
    if words[:1] == ["matrix"] and len(words) > 1:
        return write_matrix(words[1:])
    parser.add_argument("directory", type=Path, metavar="DIR", help="of a run or of a sweep; issue DIR: its issue")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the page of a run goes (default: DIR.html)")
    given = parser.parse_args(words)
    path = given.directory.expanduser().absolute()
    try:
        if (path / NAME).is_file():
            print(f"drawn: {write_sweep_files(Sweep.read(path))}")
            return EXIT_PASS
        return draw_run(path, given.output or path.with_name(f"{path.name}.html"))
    except (ConfigError, OSError) as error:
        print(f"vst.report: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG


def write_issue(words: Sequence[str]) -> int:
    """Print the issue of a run, or write it to a file; 10 and nothing written when the bundle does not hold."""
    parser = argparse.ArgumentParser(prog="python -m vst.report issue", description="A fault, ready to be reported.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="of a run of lane diagnose")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the report goes (default: it is printed)")
    given = parser.parse_args(words)
    path = given.directory.expanduser().absolute()
    try:
        text = issue(path)
        if problems := _problems(path):
            print(f"vst.report: {visible('; '.join(problems))}", file=sys.stderr)
            return EXIT_CODES[Outcome.FAIL]
        if given.output is None:
            print(text, end="")
        elif given.output.absolute().is_relative_to(path):
            raise ConfigError(f"{given.output} is inside of the run, which is sealed: give another directory")
        else:
            write_atomic(given.output.absolute(), text.encode())
    except (ConfigError, OSError) as error:
        print(f"vst.report: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG
    return EXIT_PASS


def write_matrix(words: Sequence[str]) -> int:
    """Write the table of all runs in the given directories as JSON, and its page beside it."""
    parser = argparse.ArgumentParser(prog="python -m vst.report matrix", description="Many runs as one table.")
    parser.add_argument("directory", type=Path, nargs="+", metavar="DIR", help="with runs in it")
    parser.add_argument("--output", type=Path, metavar="FILE.json", required=True, help="where the table goes")
    given = parser.parse_args(words)
    try:
        found = matrix([path.expanduser().absolute() for path in given.directory])
        write_atomic(given.output.absolute(), (json.dumps(found, indent=1) + "\n").encode())
        write_atomic(given.output.absolute().with_suffix(".md"), page(found).encode())
    except (ConfigError, OSError) as error:
        print(f"vst.report: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG
    print(f"{len(found['rows'])} rows: {visible(given.output)}")
    return EXIT_PASS


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
