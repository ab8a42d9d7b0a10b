from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from vst.errors import TransportError
from vst.server.lock import ServerLock, ServerLocked, address_of

HOLD = """
import sys, time
from vst.server.lock import ServerLock
lock = ServerLock(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def holder(url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_run_is_refused_and_told_who_holds_the_server(url: str, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(ServerLocked, match=rf"process {holder.pid}\b"):
        ServerLock(url)


def test_every_one_of_many_contenders_is_told_who_holds_the_server(url: str, holder: subprocess.Popen[str]) -> None:
    for _ in range(20):
        with pytest.raises(ServerLocked, match=rf"process {holder.pid}\b"):
            ServerLock(url)


def test_the_lock_is_free_once_its_holder_was_killed(url: str, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    ServerLock(url).release()


def test_a_released_lock_can_be_taken_again(url: str) -> None:
    for _ in range(2):
        ServerLock(url).release()


def test_one_process_cannot_hold_a_server_twice(url: str) -> None:
    lock = ServerLock(url)
    with pytest.raises(ServerLocked, match=f"process {os.getpid()}"):
        ServerLock(url)
    lock.release()


@pytest.mark.parametrize(
    "other", ["http://localhost:8000", "http://127.0.0.1:8000/", "http://[::1]:8000", "http://127.8.9.1:8000"]
)
def test_two_names_of_one_server_are_one_lock(other: str) -> None:
    assert address_of(other) == address_of("http://127.0.0.1:8000")


def test_two_ports_are_two_servers() -> None:
    assert address_of("http://127.0.0.1:8000") != address_of("http://127.0.0.1:8001")
    assert address_of("http://127.0.0.1") == "127.0.0.1:80"
    assert address_of("https://127.0.0.1") == "127.0.0.1:443"


def test_a_host_without_an_address_is_a_transport_error_that_names_it() -> None:
    with pytest.raises(TransportError, match=r"no-such-host\.invalid"):
        ServerLock("http://no-such-host.invalid:8000")
