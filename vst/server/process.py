"""A vLLM server as a child: started under the guard, watched until it answers, stopped with everything it started."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from vst.errors import TransportError
from vst.lifeline import descendants, guarded
from vst.server.client import ControlPlane, HttpFailure, Unreachable

LAST_LINES = 15
STOP_GRACE_S = 20.0
POLL_S = 0.25


class ServerDied(TransportError):
    """The server's process ended, or did not become ready in time; the message holds the last lines of its log."""


def free_port(host: str) -> int:
    """A port of ``host`` that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def expect_free(host: str, port: int) -> None:
    """TransportError when somebody listens on the port already: his answers would be taken for our server's."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As servers do it: connections that are still closing do not count, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise TransportError(f"{host}:{port} cannot be used ({error}): set server.port=0 or another one") from error


def tail(path: Path, lines: int = LAST_LINES) -> str:
    """The last ``lines`` lines of a log, reading no more than its last 64 KiB."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (64 << 10)))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])


class ServerProcess:
    """One server that we own; ``stop`` leaves none of its processes, whatever state they are in."""

    def __init__(self, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.argv = command
        with log.open("ab") as out:
            self._guard = subprocess.Popen(
                guarded(command), stdin=subprocess.PIPE, stdout=out, stderr=out, env=dict(env), start_new_session=True
            )
        self._members: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        return self._guard.pid

    @property
    def alive(self) -> bool:
        return self._guard.poll() is None

    def ended_within(self, seconds: float) -> bool:
        """Whether the server has ended, or does so within ``seconds``."""
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(seconds)
        return not self.alive

    def wait_ready(self, control: ControlPlane, timeout_s: float) -> float:
        """Wait until ``/health`` answers; returns the seconds it took, raises ServerDied with the log's end."""
        begun = time.monotonic()
        while time.monotonic() - begun < timeout_s:
            if not self.alive:
                raise ServerDied(self._story(f"the server ended with code {self._guard.returncode} while starting"))
            try:
                control.get("/health", timeout_s=5.0)
            except (Unreachable, HttpFailure):
                time.sleep(POLL_S)
            else:
                return time.monotonic() - begun
        raise ServerDied(self._story(f"the server was not ready after {timeout_s:g} s (server.start_timeout_s)"))

    def _story(self, what: str) -> str:
        return f"{what}; the end of {self.log.name}:\n{tail(self.log)}"

    def kill(self) -> None:
        """Kill every process of the server at once and at whatever they are, without a word to any of them."""
        for member in descendants(self._guard.pid):
            with suppress(psutil.NoSuchProcess):
                member.kill()

    def stop(self) -> None:
        """End the server: first the guard is asked, then whatever is left is killed."""
        self._members = [*descendants(self._guard.pid), *self._members]
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            self._guard.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        for member in self._members:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(self._members, timeout=5)
