"""Calls that break: an answer that is replaced, one that never comes, a connection that is cut, a process that dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from vst.selftest.fault import Fault

FOREVER_S = 86400.0


class Answered(Exception):
    """This status and body are the answer, whatever was done."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"answers {status}")
        self.status = status
        self.body = body


class Cut(Exception):
    """The connection is reset without an answer."""


class Breaking:
    """Which call is to break now; counts the calls of each route and the buckets of all updates."""

    def __init__(self, faults: Sequence[Fault], served: Callable[[], int]) -> None:
        self._faults = [fault for fault in faults if fault.kind in ("answer", "hang", "cut", "die")]
        self._served = served
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count(self, path: str) -> int:
        """Count a call that has come; returns which one of its route it is, from 1."""
        with self._lock:
            self._calls[path] += 1
            return self._calls[path]

    def at(self, path: str, number: int, when: str, replica: int | None = None) -> None:
        """Break the call if a fault says so; returns when none does."""
        for fault in self._faults:
            of_it = fault.path == path and fault.when == when and fault.phase != "broadcast"
            if of_it and self._due(fault, number) and fault.replica in (None, replica):
                self._break(fault)

    def bucket(self, update: int, bucket: int) -> None:
        """Break the broadcast at a bucket of an update, both counted from 1."""
        for fault in self._faults:
            if fault.phase == "broadcast" and (fault.bucket or 1) == bucket and self._due(fault, update):
                self._break(fault)

    def _due(self, fault: Fault, number: int) -> bool:
        return fault.due(number) and self._served() >= fault.after

    def _break(self, fault: Fault) -> None:
        if fault.kind == "answer":
            raise Answered(fault.status, fault.body if fault.body is not None else {"error": "scripted"})
        if fault.kind == "cut":
            raise Cut
        if fault.kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FOREVER_S if fault.seconds is None else fault.seconds)
