from __future__ import annotations

from typing import Any, cast

import pytest

from vst.errors import TransportError, VerificationError
from vst.lanes.diagnose import search as searching
from vst.lanes.diagnose.bench import Bench
from vst.lanes.diagnose.found import Diagnosis
from vst.lanes.diagnose.search import _narrowed


class Fresh:
    """A bench of which only the restart is asked."""

    def __init__(self) -> None:
        self.restarts = 0

    def restart(self) -> None:
        self.restarts += 1


def died() -> None:
    raise TransportError("POST /v1/completions: answered 500: EngineDeadError")


def test_a_server_that_dies_of_a_part_ends_the_search_and_is_replaced() -> None:
    bench, found = Fresh(), Diagnosis(12)
    error = _narrowed(cast(Bench, bench), found, died)
    assert isinstance(error, TransportError) and bench.restarts == 1
    assert found.stopped == f"the push of a part ended the search: {error}"


def test_a_search_that_comes_to_its_end_restarts_nothing() -> None:
    bench, found = Fresh(), Diagnosis(12)
    assert _narrowed(cast(Bench, bench), found, lambda: None) is None
    assert (bench.restarts, found.stopped) == (0, "")


def test_what_is_not_the_servers_end_is_not_taken_for_it() -> None:
    def wrong() -> None:
        raise VerificationError("another layout")

    bench = Fresh()
    with pytest.raises(VerificationError):
        _narrowed(cast(Bench, bench), Diagnosis(12), wrong)
    assert bench.restarts == 0


def test_a_death_is_told_after_the_reload_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Fresh):
        def push(self, what: str, *rest: Any) -> Any:
            return type("Look", (), {"equal": False})

    order: list[str] = []
    monkeypatch.setattr(searching, "_identity", lambda *one: died())
    monkeypatch.setattr(searching, "_reload", lambda *one: order.append("reload"))
    session: Any = type("Session", (), {"manifests": {"model": _NoTensors, "checkpoint": _NoTensors}})
    with pytest.raises(TransportError, match="EngineDeadError"):
        searching.search(session, cast(Bench, Broken()), Diagnosis(12))
    assert order == ["reload"]


class _NoTensors:
    tensors: tuple[str, ...] = ()
