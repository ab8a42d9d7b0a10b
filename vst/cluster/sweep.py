"""The file of a sweep: which runs it has, which job each went to, and how each ended as far as the disk tells."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from vst.attempt import read_json
from vst.cluster.outcome import Ending
from vst.errors import ConfigError
from vst.provenance.atomic import write_atomic
from vst.provenance.rundir import to_bytes, utc_now
from vst.verdict import worst

FORMAT = "vst-sweep/1"
NAME = "sweep.json"
LAUNCH_DIR = ".launch"
HEARTBEAT_S = 60.0


@dataclass
class Run:
    """One run of a sweep. Paths are relative to the sweep directory; ``scheduler`` is information, never a verdict."""

    number: int
    overrides: list[str]
    directory: str
    spec: str
    config_digest: str
    attempts_before: int = 0
    job: str | None = None
    log: str | None = None
    submitted: float | None = None
    state: str = "prepared"
    scheduler: str | None = None
    ending: Ending | None = None

    @property
    def open(self) -> bool:
        """Whether more is to be expected of it."""
        return self.state in ("prepared", "submitted")

    def end(self, ending: Ending) -> None:
        self.state, self.ending = "ended", ending


@dataclass
class Sweep:
    """All runs of one sweep directory. ``watcher`` keeps the file up to date, while there is one."""

    path: Path
    launcher: str
    argv: list[str]
    runs: list[Run] = field(default_factory=list)
    started: str = field(default_factory=utc_now)
    settings: dict[str, float] = field(default_factory=dict)
    watcher: dict[str, Any] | None = None

    def base(self, run: Run) -> Path:
        return self.path / run.directory

    def unfinished(self) -> Iterator[Run]:
        return (run for run in self.runs if run.open)

    @property
    def exit_code(self) -> int | None:
        """The worst of all runs, or None while one has not ended."""
        endings = [run.ending for run in self.runs]
        return worst(one.exit_code for one in endings if one) if all(endings) else None

    def watch(self) -> None:
        """From now on this process answers for the file."""
        self.watcher = {"host": socket.gethostname(), "pid": os.getpid(), "seen": time.time()}

    def write(self) -> None:
        """Write ``sweep.json`` whole; a reader sees the old one or the new one."""
        if self.watcher is not None:
            self.watcher["seen"] = time.time()
        content = {
            "format": FORMAT,
            "launcher": self.launcher,
            "argv": self.argv,
            "started": self.started,
            "updated": utc_now(),
            "settings": self.settings,
            "watcher": self.watcher,
            "exit_code": self.exit_code,
            "runs": [asdict(run) for run in self.runs],
        }
        write_atomic(self.path / NAME, to_bytes(content))

    @staticmethod
    def read(path: Path) -> Sweep:
        """The sweep in a directory; ConfigError when there is none."""
        content = read_json(path / NAME)
        if content is None or content.get("format") != FORMAT:
            raise ConfigError(f"{path} holds no {NAME} of format {FORMAT}: it is not the directory of a sweep")
        runs = [Run(**{**run, "ending": Ending(**run["ending"]) if run["ending"] else None}) for run in content["runs"]]
        return Sweep(
            path,
            content["launcher"],
            content["argv"],
            runs,
            content["started"],
            content["settings"],
            content["watcher"],
        )

    def watched_elsewhere(self) -> bool:
        """Whether another process keeps the file up to date: one that lives here, or was seen lately on its host."""
        if self.watcher is None or self.watcher["pid"] == os.getpid():
            return False
        if self.watcher["host"] == socket.gethostname():
            return _lives(self.watcher["pid"], self.watcher["seen"])
        return bool(time.time() - self.watcher["seen"] < 5 * HEARTBEAT_S)


def _lives(pid: int, seen: float) -> bool:
    """Whether the process that had this number when it was last seen goes on."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= seen
    except psutil.Error:
        return False
