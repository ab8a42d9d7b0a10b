"""``python -m vst.provenance``: verify the directory of a run, or print a schema. Needs neither torch nor vLLM."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from vst.errors import ConfigError
from vst.harmless import visible
from vst.provenance.bundle import Bundle
from vst.provenance.report import EXIT_HOLDS, EXIT_USAGE, Report
from vst.provenance.schema import NAMES, schema
from vst.provenance.signing import load_public
from vst.provenance.verify import verify


def main(argv: list[str] | None = None) -> int:
    """The program; 0 when everything holds, 10 when something does not or the run is incomplete, 2 for usage."""
    parser = argparse.ArgumentParser(prog="python -m vst.provenance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("verify", help="hash everything again and see whether it fits together")
    check.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    check.add_argument("--rerun-checks", action="store_true", help="judge the stored records again")
    check.add_argument(
        "--key", metavar="PUB", help="PEM file with the Ed25519 public key that must have signed the run"
    )
    show = commands.add_parser("schema", help="print one of the JSON schemas")
    show.add_argument("name", choices=NAMES)
    given = parser.parse_args(argv)
    try:
        if given.command == "schema":
            print(json.dumps(schema(given.name), indent=2))
            return EXIT_HOLDS
        report = check_run(given.run_dir, given.key, given.rerun_checks)
    except ConfigError as error:
        print(f"vst.provenance: {visible(error)}", file=sys.stderr)
        return EXIT_USAGE
    print("\n".join(map(visible, report.lines())))
    return report.exit_code


def check_run(path: Path, key: str | None = None, rerun_checks: bool = False) -> Report:
    """Verify a run directory, with ``rerun_checks`` also its judgement; ConfigError for a path that is none."""
    public = load_public(key) if key else None
    report = verify(path, public)
    if rerun_checks and report.incomplete is None:
        from vst.provenance.rejudge import rejudge

        rejudge(Bundle.at(path), report)
    elif rerun_checks:
        report.notes.append("there is no verdict to judge again")
    return report


if __name__ == "__main__":
    sys.exit(main())
