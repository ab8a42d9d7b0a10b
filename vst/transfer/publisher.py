"""The parent's side of the publisher: starts the process, tells it what to do and holds a deadline for each phase.

A collective that hangs cannot be cancelled, but a process can be killed. After any failure the process is gone, no
finish was or will be sent by it, and ``PublisherFailed`` says in which phase.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from vst.errors import TransportError
from vst.transfer.plan import PHASES, JoinPlan, PushPlan, Sent

MAX_REPORT_BYTES = 16 << 20
END_S = 5.0
STACKS_S = 0.3
READ_S = 1.0
"""How long a report that was made in time is waited for when it is looked for late."""
NEEDED = {
    "ready": {"vllm", "torch"},
    "phase": {"phase"},
    "failed": {"error", "kind"},
    "done": {field.name for field in fields(Sent) if field.default_factory is MISSING},
}
"""What a report of each kind must hold; what else a report is, it is only told."""


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
    wrong), ``deadline``, ``died``, ``garbage`` (what it reported is no report), ``unreachable``, ``transport`` or
    ``error``; ``changed`` says whether the server may be half updated.
    """

    def __init__(self, message: str, phase: str, kind: str, changed: bool) -> None:
        super().__init__(message)
        self.phase = phase
        self.kind = kind
        self.changed = changed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.phase, self.kind, self.changed)


class Publisher:
    """One publisher process; ``on_event`` hears everything that it reports, as dictionaries with an ``event``.

    ``prefix`` is put before its command line, for what starts a process in another way.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        log: Path,
        on_event: Callable[[dict[str, Any]], None],
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.deadlines = deadlines
        self._prefix = prefix
        self._log = log
        self._tell = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = b""
        self.phase = "boot"
        self.changed = False
        self.versions: dict[str, str] = {}
        self._servers = 0
        self._until_time = time.monotonic()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, env: Mapping[str, str]) -> None:
        """Start the process; it imports torch and vLLM while the caller does something else."""
        command = [*self._prefix, sys.executable, "-m", "vst.transfer.child", str(os.getpid())]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(env),
                start_new_session=True,
                bufsize=0,
            )
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
        self._enter("boot", 0)

    def wait_ready(self) -> dict[str, str]:
        """The versions of vLLM and torch that the publisher has."""
        if not self.versions:
            # It was started to boot beside something else, which may have taken longer: its report may lie there since.
            self._until_time = max(self._until_time, time.monotonic() + READ_S)
            report = self._until("ready", 0)
            self.versions = {"vllm": report["vllm"], "torch": report["torch"]}
        return self.versions

    def join(self, plan: JoinPlan) -> None:
        """Meet the workers of every server of the plan: all of them join, or PublisherFailed and nothing is started."""
        self.wait_ready()
        self._servers = len(plan.members)
        self._enter("join", 0)
        self._send({"do": "join", "plan": plan.to_json()})
        self._until("joined", 0)

    def push(self, plan: PushPlan, nbytes: int) -> Sent:
        """Start, update beside the broadcast, finish; returns what was sent, or raises PublisherFailed."""
        self._enter("start", nbytes)
        self._send({"do": "push", "plan": plan.to_json()})
        report = self._until("done", nbytes)
        self.changed = False
        return Sent(**{field.name: report[field.name] for field in fields(Sent) if field.name in report})

    def stop(self) -> None:
        """End the process, at once; it has nothing to save."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process, self._lines = None, b""

    def _enter(self, phase: str, nbytes: int) -> None:
        self.phase = phase
        self.changed = self.changed or phase in ("start", "broadcast", "finish")
        self._until_time = time.monotonic() + self.deadlines.limit(phase, nbytes)

    def _send(self, command: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            raise self._failed("is not running", "died")
        left = memoryview(json.dumps(command).encode() + b"\n")
        try:
            while left:
                self._wait_for(self._process.stdin, selectors.EVENT_WRITE)
                left = left[os.write(self._process.stdin.fileno(), left) :]
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
        while b"\n" not in self._lines and len(self._lines) < MAX_REPORT_BYTES:
            chunk = self._read()
            if not chunk:
                raise self._failed(self._end(), "died")
            self._lines += chunk
        line, _, self._lines = self._lines.partition(b"\n")
        return self._report(line)

    def _report(self, line: bytes) -> dict[str, Any]:
        report: Any = None
        with suppress(ValueError, RecursionError):
            report = json.loads(line)
        event = report.get("event") if isinstance(report, dict) else None
        whole = isinstance(event, str) and report.keys() >= NEEDED.get(event, set())
        if not whole or (event == "phase" and report["phase"] not in PHASES):
            raise self._failed(f"reported what is no report: {line[:200]!r}; see {self._log.name}", "garbage")
        return dict(report)

    def _read(self) -> bytes:
        if self._process is None or self._process.stdout is None:
            raise self._failed("is not running", "died")
        self._wait_for(self._process.stdout, selectors.EVENT_READ)
        return os.read(self._process.stdout.fileno(), 1 << 16)

    def _wait_for(self, pipe: Any, ready: int) -> None:
        left = self._until_time - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, ready)
            if left <= 0 or not selector.select(left):
                self._ask_where_it_waits()
                what = f"did not finish the phase before its deadline and was killed; see {self._log.name}"
                raise self._failed(what, "deadline")

    def _ask_where_it_waits(self) -> None:
        """Have the publisher write its threads' stacks to its log; a boot that hangs could only be killed by this."""
        if self._process is not None and self.phase != "boot":
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(STACKS_S)

    def _end(self) -> str:
        try:
            code = self._process.wait(END_S) if self._process else None
        except subprocess.TimeoutExpired:
            return f"closed its pipe, lived on and was killed; see {self._log.name}"
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
        return f"{how}; see {self._log.name}"

    def _failed(self, what: str, kind: str) -> PublisherFailed:
        # The workers wait in the rendezvous for a peer that is gone now, and the whole server waits for them: also
        # those of the servers that did not refuse.
        blocked = self.phase == "join" and (kind != "answer" or self._servers > 1)
        phase, changed = self.phase, self.changed or blocked
        self.stop()
        return PublisherFailed(f"publisher, phase {phase}: {what}", phase, kind, changed)
