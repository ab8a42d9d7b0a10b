"""The warm process: what it forks is a process of its own, and ends with whoever stands for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from vst.errors import TransportError
from vst.selftest.warm_client import module_and_arguments
from vst.selftest.warm_start import WarmProcess
from vst.server.process import free_port


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    with WarmProcess(tmp_path_factory.mktemp("warm") / "warm.log") as process:
        process.wait()
        yield process


def start(warm: WarmProcess, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*warm.prefix, sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def serving(port: int) -> bool:
    return any(c.laddr.port == port and c.status == psutil.CONN_LISTEN for c in psutil.net_connections("tcp"))


def until(what: object, wanted: bool) -> None:
    deadline = time.monotonic() + 30
    while what() is not wanted:  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_from_it_ends_as_a_fresh_one_does(warm: WarmProcess, tmp_path: Path) -> None:
    words = ("lane=L0", "model=local", f"hydra.run.dir='{tmp_path / 'run'}'")
    process = start(warm, "vst", *words)
    out, _ = process.communicate(timeout=60)
    fresh = subprocess.run([sys.executable, "-m", "vst", *words], capture_output=True, text=True, timeout=60)
    assert (process.returncode, out.strip()) == (2, (fresh.stdout + fresh.stderr).strip())
    assert "model.path" in out


def test_a_module_that_it_does_not_know_is_not_run(warm: WarmProcess) -> None:
    process = start(warm, "http.server")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "is none of" in out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_stands_for_it_takes_it_along(warm: WarmProcess, a: Path, number: signal.Signals) -> None:
    port = free_port("127.0.0.1")
    process = start(warm, "vst.selftest", "--model", str(a), "--port", str(port))
    until(lambda: serving(port), True)
    process.send_signal(number)
    assert process.wait(30) == -number
    until(lambda: serving(port), False)


def test_what_it_forked_ends_with_it(a: Path, tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    with WarmProcess(tmp_path / "warm.log") as warm:
        warm.wait()
        process = start(warm, "vst.selftest", "--model", str(a), "--port", str(port))
        until(lambda: serving(port), True)
    until(lambda: serving(port), False)
    assert process.wait(30) == 1
    assert "the warm process is gone" in process.communicate()[0]


def test_what_stands_before_the_interpreter_is_not_run() -> None:
    words = ["bash", "-c", 'exec "$@"', "0", "/usr/bin/python3", "-m", "server", "-m", "one"]
    assert module_and_arguments(words) == ["server", "-m", "one"]
    assert module_and_arguments(["vst", "-m", "lane=L0"]) == ["vst", "-m", "lane=L0"]


def test_a_warm_process_that_cannot_start_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "vllm.py").write_text("raise ImportError('no vLLM here')")
    with pytest.raises(TransportError, match="warm.log"), WarmProcess(tmp_path / "warm.log") as process:
        process.wait()
    assert "no vLLM here" in (tmp_path / "warm.log").read_text()
