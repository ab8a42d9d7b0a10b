"""The parent's side of the publisher: starts the process, tells it what to do and holds a deadline for each phase.

A collective that hangs cannot be cancelled, but a process can be killed. After any failure the process is gone, no
finish was or will be sent by it, and ``PublisherFailed`` says in which phase.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import TransportError
from vst.transfer.plan import JoinPlan, PushPlan, Sent


@dataclass(frozen=True)
class Deadlines:
    """The longest wait for each phase in seconds; the broadcast's grows with the bytes at ``min_bytes_per_s``."""

    boot_s: float
    join_s: float
    start_s: float
    broadcast_s: float
    finish_s: float
    min_bytes_per_s: float

    def limit(self, phase: str, nbytes: int) -> float:
        if phase == "broadcast":
            return self.broadcast_s + nbytes / self.min_bytes_per_s
        return float(getattr(self, f"{phase}_s"))


class PublisherFailed(TransportError):
    """The publisher ended without success.

    ``phase`` is where; ``kind`` is ``answer`` (the server answered with a failure), ``stream`` (its own stream was
    wrong), ``deadline``, ``died``, ``unreachable``, ``transport`` or ``error``; ``changed`` says whether the server may
    be half updated.
    """

    def __init__(self, message: str, phase: str, kind: str, changed: bool) -> None:
        super().__init__(message)
        self.phase = phase
        self.kind = kind
        self.changed = changed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.phase, self.kind, self.changed)


class Publisher:
    """One publisher process; ``on_event`` hears everything that it reports, as dictionaries with an ``event``."""

    def __init__(self, deadlines: Deadlines, log: Path, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._deadlines = deadlines
        self._log = log
        self._tell = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = b""
        self.phase = "boot"
        self.changed = False
        self.versions: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, env: Mapping[str, str]) -> None:
        """Start the process; it imports torch and vLLM while the caller does something else."""
        command = [sys.executable, "-m", "vst.transfer.child", str(os.getpid())]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(env),
                start_new_session=True,
            )
        self._enter("boot", 0)

    def wait_ready(self) -> dict[str, str]:
        """The versions of vLLM and torch that the publisher has."""
        if not self.versions:
            report = self._until("ready", 0)
            self.versions = {"vllm": report["vllm"], "torch": report["torch"]}
        return self.versions

    def join(self, plan: JoinPlan) -> None:
        self.wait_ready()
        self._enter("join", 0)
        self._send({"do": "join", "plan": plan.to_json()})
        self._until("joined", 0)

    def push(self, plan: PushPlan, nbytes: int) -> Sent:
        """Start, update beside the broadcast, finish; returns what was sent, or raises PublisherFailed."""
        self._enter("start", nbytes)
        self._send({"do": "push", "plan": plan.to_json()})
        report = self._until("done", nbytes)
        self.changed = False
        return Sent(**{key: value for key, value in report.items() if key != "event"})

    def stop(self) -> None:
        """End the process, at once; it has nothing to save."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def _enter(self, phase: str, nbytes: int) -> None:
        self.phase = phase
        self.changed = self.changed or phase in ("start", "broadcast", "finish")
        self._until_time = time.monotonic() + self._deadlines.limit(phase, nbytes)

    def _send(self, command: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            raise self._failed("is not running", "died")
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed(self._end(), "died") from None

    def _until(self, event: str, nbytes: int) -> dict[str, Any]:
        while True:
            report = self._next()
            self._tell(report)
            if report["event"] == event:
                return report
            if report["event"] == "phase":
                self._enter(report["phase"], nbytes)
            elif report["event"] == "failed":
                raise self._failed(report["error"], report["kind"])

    def _next(self) -> dict[str, Any]:
        while b"\n" not in self._lines:
            chunk = self._read()
            if not chunk:
                raise self._failed(self._end(), "died")
            self._lines += chunk
        line, _, self._lines = self._lines.partition(b"\n")
        return dict(json.loads(line))

    def _read(self) -> bytes:
        if self._process is None or self._process.stdout is None:
            raise self._failed("is not running", "died")
        left = self._until_time - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if left <= 0 or not selector.select(left):
                raise self._failed("did not finish the phase before its deadline and was killed", "deadline")
        return os.read(self._process.stdout.fileno(), 1 << 16)

    def _end(self) -> str:
        code = self._process.wait() if self._process else None
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
        return f"{how}; see {self._log.name}"

    def _failed(self, what: str, kind: str) -> PublisherFailed:
        phase, changed = self.phase, self.changed
        self.stop()
        return PublisherFailed(f"publisher, phase {phase}: {what}", phase, kind, changed)
