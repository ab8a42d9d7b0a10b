"""Which way back is taken after a fault, and what is said where there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from lanes.test_seats import replica
from vst.lanes.endurance import recovery
from vst.lanes.endurance.recovery import Recovered, recover
from vst.lanes.fleet import Fleet
from vst.lanes.transaction import TransactionFailed
from vst.verdict import Outcome

OPEN = "it refuses to start an update: the failed one was left open"


@dataclass
class World:
    """Two servers after a fault, with what a push does to them; ``done`` are the pushes and restarts in order."""

    fleet: Fleet
    kind: str
    refuses: bool = False
    done: list[str] = field(default_factory=list)

    @property
    def session(self) -> Any:
        conf = SimpleNamespace(server=SimpleNamespace(kind=self.kind), transfer=SimpleNamespace(mtp=False))
        progress = SimpleNamespace(say=lambda text: None)
        return SimpleNamespace(conf=conf, progress=progress, manifests={}, need=lambda name: self.fleet)

    def push(self, session: Any, push: Any) -> None:
        self.done.append("push")
        if self.refuses:
            for one in self.fleet.replicas:
                one.lifecycle.recovering = True
            self.fleet.taint("409", OPEN)
            raise TransactionFailed("start was refused", Outcome.FAIL, "weight-update-2.json")
        for one in self.fleet.replicas:
            one.lifecycle.found(False, False, "model")

    def restart(self, session: Any, index: int) -> None:
        self.done.append(f"restart {index + 1}")
        self.refuses = False
        replicas = list(self.fleet.replicas)
        replicas[index] = replica(replicas[index].server.title)
        self.fleet = Fleet(tuple(replicas))

    def recover(self) -> Recovered:
        return recover(self.session, "hang", {})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(kind: str, **changes: Any) -> World:
        found = World(Fleet((replica("server 1"), replica("server 2"))), kind, **changes)
        found.fleet.taint("the publisher was killed")
        monkeypatch.setattr(recovery, "restore", found.push)
        monkeypatch.setattr(recovery, "restart", found.restart)
        equal = [{"seat": "server 1", "equal": True}, {"seat": "server 2", "equal": True}]
        monkeypatch.setattr(
            recovery, "_compared", lambda session, fault, way, why, states: Recovered(fault, way, why, tuple(equal))
        )
        return found

    return make


def test_a_push_is_enough_where_it_succeeds(world: Any) -> None:
    here = world("cpu")
    assert here.recover().way == "push" and here.recover().good
    assert here.done[0] == "push" and not [one for one in here.done if one.startswith("restart")]


def test_a_server_of_ours_whose_update_was_left_open_is_restarted_and_pushed_again(world: Any) -> None:
    here = world("cpu", refuses=True)
    found = here.recover()
    assert (found.way, found.good) == ("restart", True)
    assert OPEN in found.reason
    assert here.done == ["push", "restart 1", "restart 2", "push"]


def test_a_server_of_somebody_else_whose_update_was_left_open_needs_a_restart_and_is_said_to(world: Any) -> None:
    here = world("attach", refuses=True)
    found = here.recover()
    assert (found.way, found.good) == ("none", False)
    assert found.reason.startswith("restart needed: server 1: it refuses to start an update")
    assert here.done == ["push"]
    assert here.fleet.state == "tainted"


def test_only_the_server_that_died_is_restarted_before_the_push(world: Any) -> None:
    here = world("cpu")
    here.fleet.replicas[1].lifecycle.died("killed")
    assert here.recover().way == "restart"
    assert here.done == ["restart 2", "push"]


def test_a_dead_server_of_somebody_else_is_not_pushed_to(world: Any) -> None:
    here = world("attach")
    here.fleet.replicas[1].lifecycle.died("gone")
    assert here.recover().reason == "restart needed: server 2: its process has ended"
    assert here.done == []


def test_a_server_that_refuses_even_after_a_restart_is_given_up(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world("cpu", refuses=True)
    monkeypatch.setattr(recovery, "restart", lambda session, index: here.done.append(f"restart {index + 1}"))
    assert here.recover().reason.startswith("not even after a restart: start was refused")
    assert here.done == ["push", "restart 1", "restart 2", "push"]
