"""How a sweep or a run goes on, from its files: ``python -m vst.status DIR`` on any machine that sees the directory."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vst.attempt import RUN_FILE
from vst.cluster.outcome import read_ending
from vst.cluster.pages import draw_pages
from vst.cluster.refresh import bury_orphans, refresh
from vst.cluster.sweep import NAME, Sweep
from vst.cluster.table import SweepConsole
from vst.errors import ConfigError
from vst.harmless import plain, visible
from vst.run_progress import read_progress
from vst.verdict import EXIT_CODES, EXIT_CONFIG, EXIT_INTERRUPTED, Outcome

NOT_ENDED = EXIT_CODES[Outcome.INCONCLUSIVE]
EVERY_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; exit code 0 only if everything passed, 12 while something has not ended, else the worst."""
    parser = argparse.ArgumentParser(prog="python -m vst.status", description=__doc__)
    parser.add_argument("directory", type=Path, help="of a sweep (with sweep.json) or of one run (with run.json)")
    parser.add_argument("--watch", type=float, nargs="?", const=EVERY_S, metavar="SECONDS",
                        help=f"look again every so many seconds ({EVERY_S:g}) until all has ended")  # fmt: skip
    given = parser.parse_args(argv)
    path = given.directory.expanduser().absolute()
    look = sweep_status if (path / NAME).exists() else run_status
    try:
        return watch(lambda: look(path), None if given.watch is None else max(given.watch, 0.1))
    except (ConfigError, OSError) as error:
        print(f"vst: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def watch(look: Callable[[], tuple[int, bool]], every_s: float | None) -> int:
    """Look once, or until nothing more is to be expected; an interruption ends the watching and nothing else."""
    while True:
        code, goes_on = look()
        if every_s is None or not goes_on:
            return code
        time.sleep(every_s)


def sweep_status(path: Path) -> tuple[int, bool]:
    """Refresh ``sweep.json``, unless a launcher that lives does so, and show it; exit code, and whether it goes on."""
    sweep = Sweep.read(path)
    watched = sweep.watched_elsewhere()
    refresh(sweep)
    if not watched:
        bury_orphans(sweep)
        sweep.watcher = None
        sweep.write()
    console = SweepConsole()
    console.table(sweep)
    if sweep.exit_code is not None and not watched:
        draw_pages(sweep, console.say)
    for run in sweep.unfinished():
        if run.job is not None and (sweep.base(run) / RUN_FILE).exists():
            print(f"run {run.number}: {read_progress(sweep.base(run))}")
    return (NOT_ENDED, True) if sweep.exit_code is None else (sweep.exit_code, False)


def run_status(path: Path) -> tuple[int, bool]:
    """Show one run that is no part of a sweep; exit code, and whether it goes on as far as can be seen from here."""
    if not (path / RUN_FILE).exists():
        raise ConfigError(f"{path} holds neither {NAME} nor {RUN_FILE}")
    ending = read_ending(path)
    if ending is not None:
        print(f"{ending.verdict}  exit code {ending.exit_code}  {plain(ending.reason)}", flush=True)
        return ending.exit_code, False
    progress = read_progress(path)
    print(progress, flush=True)
    return NOT_ENDED, progress.alive is not False


if __name__ == "__main__":
    sys.exit(main())
