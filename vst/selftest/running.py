"""Running rows: each is a run of the product in a process of its own, with a limit; only its files count."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vst.provenance.atomic import file_sha256
from vst.provenance.rundir import VERDICT
from vst.selftest.judging import Ran, sent_after_taint
from vst.selftest.row import PROBES, Row, quoted

ORACLE_SEED = 20260101


@dataclass
class Rows:
    """Starts the rows of one table below ``directory``; ``prefix`` is how a process is started, empty for afresh.

    Their references are kept below it too and used by no other run: a double that was changed answers otherwise.
    """

    directory: Path
    checkpoints: Mapping[str, tuple[Path, Path]]
    prefix: tuple[str, ...]
    limit_s: float
    _live: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _ended: bool = False

    def run(self, row: Row, seed: int) -> Ran:
        """Run one row to its end or its limit."""
        out = self.directory / f"{row.name}-{seed}"
        begun = time.monotonic()
        with (self.directory / f"{out.name}.out").open("wb") as log:
            process = subprocess.Popen(
                self.command(row, seed, out), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )
            self._live.add(process)
            if self._ended:
                process.kill()
            code = self._wait(process)
        seconds, verdict = time.monotonic() - begun, read_verdict(out)
        digest = file_sha256(out / VERDICT) if verdict is not None else None
        return Ran(code, verdict, read_taint(out), seconds, out.name, digest)

    def command(self, row: Row, seed: int, out: Path) -> list[str]:
        """The command line of a row, as anybody could type it."""
        a, b = self.checkpoints[row.pair]
        prefix = ",".join(map(quoted, self.prefix))
        return [
            *(*self.prefix, sys.executable, "-m", "vst"),
            *("model=local", f"model.path={quoted(str(a))}", f"checkpoint.path={quoted(str(b))}"),
            f"hydra.run.dir={quoted(str(out))}",
            f"paths.cache={quoted(str(self.directory / 'cache'))}",
            f"oracle.probes={PROBES}",
            f"oracle.seed={ORACLE_SEED + seed}",
            f"publisher.launch_prefix=[{prefix}]",
            *row.words(),
            f"server.launch_prefix=[{prefix}]",
        ]

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            self._live.discard(process)

    def end(self) -> None:
        """Kill what still runs, and whatever would be started from now on."""
        self._ended = True
        for process in list(self._live):
            with suppress(ProcessLookupError):
                process.kill()


def read_verdict(run: Path) -> Mapping[str, Any] | None:
    """The verdict of a run that came to its own end; None for any other."""
    try:
        state = json.loads((run / "run.json").read_text())["state"]
        verdict = json.loads((run / VERDICT).read_text())
    except (OSError, ValueError, KeyError):
        return None
    return dict(verdict) if state == "complete" else None


def read_taint(run: Path) -> tuple[str, ...]:
    """The serving calls that were sent after the server was given up."""
    try:
        lines = (run / "events.jsonl").read_text().splitlines()
    except OSError:
        return ()
    return sent_after_taint([json.loads(line) for line in lines if line.endswith("}")])


def kinds(rows: Sequence[Row]) -> list[str]:
    """The pairs of checkpoints that some rows need."""
    return sorted({row.pair for row in rows})
