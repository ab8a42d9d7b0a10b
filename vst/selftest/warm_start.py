"""Starting the warm process, and the words that start something from it instead of afresh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from vst.errors import TransportError
from vst.lifeline import guarded

READY_S = 180.0
SELFTEST = ("-m", "vst.selftest.warm")
POLL_S = 0.05


class WarmProcess:
    """One warm process for the length of a ``with``; ``prefix`` goes before ``python -m MODULE …``.

    ``program`` are the words after ``python`` that start it, without the address. It runs under the guard, which also
    ends what it has forked and what that has forked, whichever of them has gone first.
    """

    def __init__(self, log: Path, ready_s: float = READY_S, program: Sequence[str] = SELFTEST) -> None:
        self._log, self._ready_s, self._program = log, ready_s, program
        # The path of a socket may be no longer than 107 bytes, which a run directory's can be.
        self._place = Path(tempfile.mkdtemp(prefix="vst-warm-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Path:
        return self._place / "socket"

    @property
    def prefix(self) -> tuple[str, ...]:
        client = Path(__file__).with_name("warm_client.py")
        return (sys.executable, "-I", "-S", str(client), str(self.address))

    def __enter__(self) -> WarmProcess:
        command = guarded([sys.executable, *self._program, str(self.address)])
        env = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, start_new_session=True
            )
        return self

    def wait(self) -> None:
        """Wait until something can be started; TransportError when the warm process does not come up in time."""
        until = time.monotonic() + self._ready_s
        while not self.address.exists():
            if self._process is None or self._process.poll() is not None:
                raise TransportError(f"the warm process ended while importing; see {self._log}")
            if time.monotonic() > until:
                raise TransportError(f"the warm process was not ready after {self._ready_s:g} s; see {self._log}")
            time.sleep(POLL_S)

    def __exit__(self, *error: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
        shutil.rmtree(self._place)
