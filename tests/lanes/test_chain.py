from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from http_server import HttpServer
from server.sleeper import Sleeper

from vst.config import VstConf
from vst.lanes.chain import Interpreter, StepFailed
from vst.lanes.fleet import Fleet, Replica, Server
from vst.lanes.session import Session
from vst.lanes.streams import Marks
from vst.load.generator import Load
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.server.client import ControlPlane
from vst.server.lifecycle import RESETS, Lifecycle
from vst.server.plan import parse_all
from vst.server.states import IllegalMove, Situation
from vst.verdict import Outcome

REQUEST = Request(("vst",), (), "sha256:0")
SILENT = cast(Any, SimpleNamespace(say=lambda text: None, bytes=lambda what, done, total: None))


@contextmanager
def chain(path: Path, *sleepers: Sleeper, routes: dict[str, Any] | None = None) -> Iterator[tuple[Interpreter, Any]]:
    """An interpreter over servers that have only their states, and the first of these."""
    servers = [HttpServer({**one.routes(), **(routes or {})}) for one in sleepers or (Sleeper(),)]
    session = Session(VstConf(), RunDir(path, REQUEST), SILENT)
    session.fleet = Fleet(tuple(_replica(server, number) for number, server in enumerate(servers)))
    yield Interpreter(session, "test"), servers
    for server in servers:
        server.close()


def _replica(server: HttpServer, number: int) -> Replica:
    control = ControlPlane(server.url)
    lifecycle = Lifecycle(control, lambda kind, **fields: None)
    lifecycle.found(False, False, "model")
    return Replica(Server(control, "m", title=f"server {number}"), cast(Any, None), lifecycle)


def stored(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "chain-test.json").read_text()))


def test_each_step_is_made_observed_and_written_down(tmp_path: Path) -> None:
    with chain(tmp_path) as (one, (server,)):
        one.run(parse_all(["pause(keep)", "reset", "sleep(1)", "wake", "resume"]))
    steps = stored(tmp_path)["steps"]
    assert [step["after"] for step in steps] == ["paused", "paused", "asleep(1)", "serving", "serving"]
    assert steps[2]["observed"] == {"paused": True, "sleeping": True, "levels": [1], "level": 1}
    assert server.paths() == ["/pause", *RESETS, "/sleep", "/wake_up", "/resume"]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert kinds.count("step") == 5


def test_a_chain_is_refused_whole_before_its_first_step(tmp_path: Path) -> None:
    with chain(tmp_path) as (one, (server,)):
        with pytest.raises(IllegalMove, match="step 3 of 3, push: push is refused"):
            one.run(parse_all(["pause(keep)", "resume", "push"]))
        assert server.calls == [] and one.lifecycle.state == "serving"


def test_a_single_step_that_is_not_legal_changes_nothing_and_is_kept(tmp_path: Path) -> None:
    with chain(tmp_path) as (one, (server,)):
        with pytest.raises(IllegalMove):
            one.make(parse_all(["push"])[0])
        assert server.calls == [] and one.lifecycle.state == "serving" and one.failure is None
    assert stored(tmp_path)["refused"][0].startswith("push: push is refused: the server is serving; pause first")


def test_a_step_that_fails_taints_the_server_and_ends_the_chain(tmp_path: Path) -> None:
    with chain(tmp_path, Sleeper(frozen_flag=True)) as (one, (server,)):
        with pytest.raises(StepFailed, match=r"step 2, sleep\(1\): /is_paused says .*no later step was made") as caught:
            one.run(parse_all(["reset", "sleep(1)", "wake", "resume"]))
        assert caught.value.outcome is Outcome.FAIL
        assert (one.lifecycle.state, one.lifecycle.left) == ("tainted", "paused")
        assert server.paths() == [*RESETS, "/sleep", "/pause"]
    assert stored(tmp_path)["server"] == {"state": "tainted", "holds": "model"}
    assert "sleep(1)" in stored(tmp_path)["failure"]


def test_a_step_whose_answer_never_comes_is_an_error_and_no_false_property(tmp_path: Path) -> None:
    with chain(tmp_path) as (one, (server,)):
        server.close()
        with pytest.raises(StepFailed) as caught:
            one.run(parse_all(["pause(keep)"]))
        assert caught.value.outcome is Outcome.ERROR and one.lifecycle.left.startswith("not known to be paused")


def test_a_server_that_moves_back_behind_our_back_is_noticed_after_the_step(tmp_path: Path) -> None:
    sleeper = Sleeper()
    with chain(tmp_path, sleeper) as (one, _):
        sleeper.level = 2
        with pytest.raises(StepFailed, match="the sleep gauge says 2, expected 0 for a server that is paused"):
            one.run(parse_all(["pause(keep)"]))


def test_the_prefix_cache_must_say_so_at_every_reset_of_a_chain(tmp_path: Path) -> None:
    answers = iter([True, *[False] * 9])
    routes = {f"POST {RESETS[0]}": lambda call: {"success": next(answers)}}
    with chain(tmp_path, routes=routes) as (one, (server,)):
        with pytest.raises(StepFailed, match="step 3, reset: .*success is false"):
            one.run(parse_all(["pause(keep)", "reset", "reset", "resume"]))
        assert "/resume" not in server.paths()


def test_every_server_makes_every_step_and_one_that_does_not_taints_all(tmp_path: Path) -> None:
    with chain(tmp_path, Sleeper(), Sleeper(frozen_flag=True)) as (one, (first, second)):
        with pytest.raises(StepFailed, match="server 1: /is_paused says False"):
            one.run(parse_all(["reset", "sleep(1)", "wake"]))
        states = [replica.lifecycle.state for replica in one.session.need("fleet").replicas]
        assert states == ["tainted", "tainted"]
        assert "/wake_up" not in first.paths() + second.paths()


class Marked:
    """In the place of a load: keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def mark(self, what: str, **fields: Any) -> None:
        self.told.append(" ".join([what, *map(str, fields.values())]))


WHOLE = ["pausing abort", "paused", "resuming", "resumed"]


@pytest.mark.parametrize(
    ("sleeper", "steps", "marks"),
    [
        (Sleeper(), ["abort", "reset", "sleep(2)"], WHOLE[:2]),
        (Sleeper(), ["abort", "sleep(1)", "wake(weights)", "pause(keep)", "wake(kv_cache)", "reset", "resume"], WHOLE),
        (Sleeper(resumes=False), ["sleep(1)", "wake", "reset", "resume"], WHOLE),
        (Sleeper(), ["pause(wait)", "reset", "resume"], ["pausing wait", *WHOLE[1:]]),
        (Sleeper(), ["pause(keep)", "resume", "pause(keep)"], ["pausing keep", *WHOLE[1:], "pausing keep", "paused"]),
    ],
)
def test_a_load_hears_of_one_pause_from_the_first_stop_to_the_last_go(
    tmp_path: Path, sleeper: Sleeper, steps: list[str], marks: list[str]
) -> None:
    load = Marked()
    with chain(tmp_path, sleeper) as (one, _):
        one.watch = Marks(one.session, cast(Load, load))
        one.run(parse_all(steps))
        assert load.told == marks
        assert (one.lifecycle.situation is Situation.SERVING) == (marks[-1] == "resumed")
