"""Servers that are forked from the warm process: real ones, each with processes of its own that end with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from e2e.conftest import Live, Run
from vst.oracle.compare import difference
from vst.oracle.record import Record


@pytest.fixture
def one(pair: tuple[Path, Path], warm: tuple[str, ...], tmp_path: Path) -> Iterator[Live]:
    live = Live(pair[0], tmp_path / "server.log", warm)
    live.start()
    yield live
    live.stop()


def family(live: Live) -> list[psutil.Process]:
    """The server that listens on the port and all that it started: they are one process group."""
    listening = [one for one in psutil.net_connections("tcp") if one.laddr.port == live.port and one.status == "LISTEN"]
    group = os.getpgid(listening[0].pid or 0)
    return [one for one in psutil.process_iter() if in_group(one, group)]


def in_group(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group
    except ProcessLookupError:
        return False


def test_it_answers_exactly_as_a_server_that_started_afresh(ladder: Run, one: Live) -> None:
    fresh = Record.from_json(json.loads((ladder.dir / "record-model-1.json").read_text()))
    assert one.cold is not None
    assert difference(one.cold, fresh, 0.0).equal


def test_its_engine_is_another_process_and_ends_with_whoever_stands_for_it(one: Live) -> None:
    members = family(one)
    assert len(members) >= 2, "the engine is no process of its own"
    assert one.process is not None
    one.process.kill()
    assert psutil.wait_procs(members, timeout=30)[1] == []


def test_it_is_stopped_with_its_engine(one: Live) -> None:
    members = family(one)
    assert len(members) >= 2
    one.stop()
    assert psutil.wait_procs(members, timeout=30)[1] == []
