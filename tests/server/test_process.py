from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from vst.errors import TransportError
from vst.server.client import ControlPlane
from vst.server.process import ServerDied, ServerProcess, expect_free, free_port, tail

HEALTHY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"{}")
    def log_message(self, *args): pass
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

TREE = """
import os, signal, subprocess, sys, time
stubborn, folder = sys.argv[1] == "stubborn", sys.argv[2]
def stay(name):
    if stubborn:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    with open(f"{folder}/{name}.tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/{name}.tmp", f"{folder}/{name}.pid")
    time.sleep(40)
if os.fork() == 0:
    stay("child")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay("double-fork-in-a-session-of-its-own")
    os._exit(0)
subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(40)", "grandchild"], start_new_session=True)
stay("server")
"""
NAMES = ("child", "double-fork-in-a-session-of-its-own", "server")


def wait_for(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to hold in time"
        time.sleep(0.02)


def tree(folder: Path) -> list[int]:
    files = [folder / f"{name}.pid" for name in NAMES]
    wait_for(lambda: all(file.exists() for file in files), 20)
    return [int(file.read_text()) for file in files]


def members_of(guard: int, folder: Path) -> list[int]:
    """The four processes of ``TREE``, those that left their parent included."""
    named = tree(folder)
    return living([*{*named, *(one.pid for one in psutil.Process(guard).children(recursive=True))}])


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def start(script: str, log: Path, *args: str) -> ServerProcess:
    return ServerProcess([sys.executable, "-c", script, *args], os.environ, log)


@pytest.fixture(scope="module", autouse=True)
def stubborn(tmp_path_factory: pytest.TempPathFactory) -> tuple[threading.Thread, list[int]]:
    """A tree that ends only by SIGKILL after the guard's grace: it is stopped while the other tests run."""
    folder = tmp_path_factory.mktemp("stubborn")
    server = start(TREE, folder / "log", "stubborn", str(folder))
    members = [server.pid, *members_of(server.pid, folder)]
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    return stopping, members


def test_a_server_is_ready_when_it_answers_and_gone_when_it_is_stopped(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    server = start(HEALTHY, tmp_path / "log", str(port))
    assert 0 < server.wait_ready(ControlPlane(f"http://127.0.0.1:{port}"), 20) < 20
    members = [child.pid for child in psutil.Process(server.pid).children(recursive=True)]
    server.stop()
    assert not server.alive and members and not living([server.pid, *members])
    expect_free("127.0.0.1", port)
    server.stop()


PARENT = """
import os, sys, time
from pathlib import Path
from vst.server.process import ServerProcess
folder = sys.argv[1]
server = ServerProcess([sys.executable, "-c", sys.argv[2], "gentle", folder], os.environ, Path(folder) / "log")
print(server.pid, flush=True)
time.sleep(40)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nobody_is_left_when_the_run_that_started_the_server_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path), TREE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            guard = int(parent.stdout.readline())
            members = members_of(guard, tmp_path)
        finally:
            os.kill(parent.pid, number)
        parent.wait()
    assert len(members) == 4
    wait_for(lambda: not living([guard, *members]), 10)


def test_a_server_that_ends_while_starting_fails_at_once_with_the_last_lines_of_its_log(tmp_path: Path) -> None:
    script = "import sys; [print('line', n) for n in range(100)]; print('CUDA out of memory'); sys.exit(3)"
    server = start(script, tmp_path / "server-model.log")
    begun = time.monotonic()
    with pytest.raises(ServerDied) as caught:
        server.wait_ready(ControlPlane(f"http://127.0.0.1:{free_port('127.0.0.1')}"), 60)
    server.stop()
    assert time.monotonic() - begun < 15
    message = str(caught.value)
    assert "code 3" in message and "CUDA out of memory" in message and "server-model.log" in message
    assert "line 99" in message and "line 50\n" not in message


def test_a_server_that_never_answers_meets_the_deadline_which_the_message_names(tmp_path: Path) -> None:
    server = start("print('loading', flush=True); import time; time.sleep(60)", tmp_path / "log")
    wait_for(lambda: "loading" in (tmp_path / "log").read_text(), 20)
    begun = time.monotonic()
    with pytest.raises(ServerDied, match=r"not ready after 0\.6 s \(server\.start_timeout_s\)(.|\n)*loading"):
        server.wait_ready(ControlPlane(f"http://127.0.0.1:{free_port('127.0.0.1')}"), 0.6)
    server.stop()
    assert time.monotonic() - begun < 10


def test_a_command_that_does_not_exist_is_a_server_that_ended(tmp_path: Path) -> None:
    server = ServerProcess(["/no/such/vllm"], os.environ, tmp_path / "log")
    with pytest.raises(ServerDied, match="/no/such/vllm"):
        server.wait_ready(ControlPlane(f"http://127.0.0.1:{free_port('127.0.0.1')}"), 30)
    server.stop()


def test_a_port_on_which_somebody_listens_is_refused_before_his_answers_are_taken_for_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(TransportError, match="server.port"):
        expect_free("127.0.0.1", other.getsockname()[1])
    expect_free("127.0.0.1", free_port("127.0.0.1"))


def test_the_servers_output_is_appended_to_its_log_and_it_reads_no_input(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    server = start("import sys; print(repr(sys.stdin.read())); print('to stderr', file=sys.stderr)", log)
    wait_for(lambda: not server.alive, 20)
    server.stop()
    text = log.read_text()
    assert text.startswith("before\n") and "''" in text and "to stderr" in text


def test_the_tail_of_a_huge_log_reads_its_end_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\n" + b"x" * (1 << 20) + b"\nlast\n")
    assert tail(log, 1) == "last"
    assert len(tail(log)) <= (64 << 10)


def test_the_whole_tree_ends_although_it_forked_twice_left_the_session_and_ignores_sigterm(
    stubborn: tuple[threading.Thread, list[int]],
) -> None:
    stopping, members = stubborn
    stopping.join(30)
    assert not stopping.is_alive() and len(members) == 5
    assert living(members) == []
