from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from http_server import HttpServer

from vst.errors import TransportError, VerificationError
from vst.server.client import ControlPlane
from vst.server.memory import MIB, devices, metric, resident

HUNGRY = """
import sys
sys.stdin.readline()
held = b"x" * (64 << 20)
print("held", flush=True)
sys.stdin.readline()
del held
print("freed", flush=True)
sys.stdin.readline()
"""


def test_resident_memory_follows_what_a_descendant_takes_and_gives_back() -> None:
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HUNGRY!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        source = resident(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        held = source.read()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert held - source.read() > 60 * MIB
        process.stdin.close()
        process.wait(10)
    with pytest.raises(TransportError, match="cannot be read"):
        source.read()
    assert not source.device


def smi(directory: Path, text: str, code: int = 0) -> None:
    path = directory / "nvidia-smi"
    path.write_text(f"#!/bin/sh\necho \"$@\" > {directory}/asked\nprintf '{text}'\nexit {code}\n")
    path.chmod(0o755)


def test_device_memory_is_that_of_the_servers_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, "1000\\n24\\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    source = devices(["0", "GPU-1"])
    assert source.read() == 1024 * MIB and source.device
    assert (tmp_path / "asked").read_text().split()[-2:] == ["-i", "0,GPU-1"]


@pytest.mark.parametrize(("text", "code"), [("1000\\n", 0), ("N/A\\n1\\n", 0), ("", 0), ("1\\n2\\n", 9)])
def test_device_memory_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int
) -> None:
    smi(tmp_path, text, code)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(TransportError, match="nvidia-smi"):
        devices(["0", "1"]).read()


def test_a_machine_without_the_tool_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match="nvidia-smi"):
        devices(["0"]).read()


def test_gpus_that_are_not_declared_are_not_guessed() -> None:
    with pytest.raises(VerificationError, match="set server.devices"):
        devices([])


METRICS = 'held_bytes{engine="0"} 1e6\nheld_bytes{engine="1"} 24\nheld_bytes_total 7\nother 1\nbroken nonsense\n'


def test_a_metric_is_summed_over_its_labels() -> None:
    with HttpServer({"GET /metrics": METRICS}) as server:
        assert metric(ControlPlane(server.url), "held_bytes").read() == 1000024
        assert metric(ControlPlane(server.url), "other").read() == 1


@pytest.mark.parametrize("name", ["held", "broken", "none"])
def test_a_metric_that_is_not_there_or_no_number_is_an_error(name: str) -> None:
    with HttpServer({"GET /metrics": METRICS}) as server, pytest.raises(TransportError, match=name):
        metric(ControlPlane(server.url), name).read()
