"""Calls that break: an answer that is replaced, one that never comes, a connection that is cut, a process that dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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


Numbers = Mapping[int, int]
"""For each fault by its place in the list, the how-manieth call since it was armed this one is."""


class Breaking:
    """Which call is to break now. A fault is armed when enough was answered and enough updates have begun; from then on
    it counts the calls of its route.
    """

    def __init__(self, faults: Sequence[Fault], served: Callable[[], int], updates: Callable[[], int]) -> None:
        self._faults = [fault for fault in faults if fault.kind in ("answer", "hang", "cut", "die")]
        self._served, self._updates = served, updates
        self._calls: Counter[int] = Counter()
        self._lock = threading.Lock()

    def count(self, path: str) -> Numbers:
        """Count a call that has come, for every armed fault of its route."""
        armed = [n for n, fault in enumerate(self._faults) if fault.path == path and self._armed(fault)]
        with self._lock:
            self._calls.update(armed)
            return {number: self._calls[number] for number in armed}

    def at(self, numbers: Numbers, when: str, replica: int | None = None) -> None:
        """Break the call if a fault says so; returns when none does."""
        for place, number in numbers.items():
            fault = self._faults[place]
            of_it = fault.when == when and fault.phase != "broadcast" and fault.replica in (None, replica)
            if of_it and fault.due(number):
                self._break(fault)

    def bucket(self, update: int, bucket: int) -> None:
        """Break the broadcast at a bucket of an update, both counted from 1."""
        for fault in self._faults:
            mine = fault.phase == "broadcast" and (fault.bucket or 1) == bucket
            if mine and fault.due(update) and self._armed(fault):
                self._break(fault)

    def _armed(self, fault: Fault) -> bool:
        return self._served() >= fault.after and self._updates() >= fault.update

    def _break(self, fault: Fault) -> None:
        if fault.kind == "answer":
            raise Answered(fault.status, fault.body if fault.body is not None else {"error": "scripted"})
        if fault.kind == "cut":
            raise Cut
        if fault.kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FOREVER_S if fault.seconds is None else fault.seconds)
