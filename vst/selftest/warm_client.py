"""Stands for one process that a warm one forks: passes on its files, arguments and signals, and ends as it ends.

Run as a script with nothing but the standard library: ``warm_client.py SOCKET [… PYTHON -m] MODULE ARGUMENTS…``. When
it is killed its connection closes, and the warm process kills what it had forked.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import signal
import socket
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def module_and_arguments(words: list[str]) -> list[str]:
    """The module with its arguments, of ``… PYTHON -m MODULE …`` or as it stands."""
    pairs = enumerate(zip(words, words[1:], strict=False))
    return words[next((n + 2 for n, pair in pairs if _runs_a_module(*pair)), 0) :]


def _runs_a_module(word: str, following: str) -> bool:
    return following == "-m" and os.path.basename(word).startswith("python")


def main(address: str, words: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)

    def forward(number: int, frame: FrameType | None) -> None:
        connection.sendall(b"%d\n" % number)

    for number in FORWARDED:
        signal.signal(number, forward)
    request = {"words": module_and_arguments(words), "env": dict(os.environ), "cwd": os.getcwd()}
    files = array.array("i", [0, 1, 2])
    connection.sendmsg(
        [json.dumps(request).encode() + b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files.tobytes())]
    )
    answer = b""
    while not answer.endswith(b"\n"):
        chunk = connection.recv(64)
        if not chunk:
            print("the warm process is gone", file=sys.stderr)
            return 1
        answer += chunk
    code = int(answer)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
