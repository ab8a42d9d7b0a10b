"""How a sweep or a run goes on, from its files: ``python -m vst.status DIR`` on any machine that sees the directory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vst.attempt import RUN_FILE
from vst.cluster.outcome import read_ending
from vst.cluster.refresh import bury_orphans, refresh
from vst.cluster.sweep import NAME, Sweep
from vst.cluster.table import SweepConsole
from vst.errors import ConfigError
from vst.verdict import EXIT_CODES, EXIT_CONFIG, Outcome

NOT_ENDED = EXIT_CODES[Outcome.INCONCLUSIVE]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; exit code 0 only if everything passed, 12 while something has not ended, else the worst."""
    parser = argparse.ArgumentParser(prog="python -m vst.status", description=__doc__)
    parser.add_argument("directory", type=Path, help="of a sweep (with sweep.json) or of one run (with run.json)")
    path = parser.parse_args(argv).directory.expanduser().absolute()
    try:
        return sweep_status(path) if (path / NAME).exists() else run_status(path)
    except (ConfigError, OSError) as error:
        print(f"vst: {error}", file=sys.stderr)
        return EXIT_CONFIG


def sweep_status(path: Path) -> int:
    """Refresh ``sweep.json``, unless a launcher that lives does that, and show it."""
    sweep = Sweep.read(path)
    watched = sweep.watched_elsewhere()
    refresh(sweep)
    if not watched:
        bury_orphans(sweep)
        sweep.watcher = None
        sweep.write()
    SweepConsole().table(sweep)
    return NOT_ENDED if sweep.exit_code is None else sweep.exit_code


def run_status(path: Path) -> int:
    """Show one run that is no part of a sweep."""
    if not (path / RUN_FILE).exists():
        raise ConfigError(f"{path} holds neither {NAME} nor {RUN_FILE}")
    ending = read_ending(path)
    print(f"{ending.verdict}  exit code {ending.exit_code}  {ending.reason}" if ending else "not ended")
    return NOT_ENDED if ending is None else ending.exit_code


if __name__ == "__main__":
    sys.exit(main())
