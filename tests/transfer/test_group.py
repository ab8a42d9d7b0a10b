"""Several servers in one transfer group: ranks, calls at the same time, and the first failure ends it for all."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NoReturn

import pytest
from http_server import Call, Reply

from transfer.conftest import Pair
from transfer.test_child import TRANSACTION, arrived, digests
from transfer.workers import WorkerServer
from vst.server.client import ControlPlane
from vst.transfer.control import GroupControl
from vst.transfer.plan import JoinPlan, Member, PushPlan
from vst.transfer.publisher import Deadlines, Publisher, PublisherFailed

DEADLINES = Deadlines(boot_s=120, join_s=60, start_s=60, broadcast_s=60, finish_s=60, min_bytes_per_s=1e6)


@pytest.fixture
def servers() -> Iterator[tuple[WorkerServer, WorkerServer]]:
    with ExitStack() as stack:
        both = WorkerServer(), WorkerServer()
        for one in both:
            stack.callback(one.close)
        yield both


def plan(layout: str, *servers: WorkerServer) -> JoinPlan:
    members = tuple(Member(server.url, 1, f"server {number}") for number, server in enumerate(servers, 1))
    return JoinPlan(layout, members, None, "vst_gloo", "127.0.0.1", 0, 65536, "cpu", 60.0, 60.0)


class GivenUp(Exception):
    """What the group's ``give_up`` raises here, so that the test's own process lives on."""


def group(*servers: WorkerServer) -> GroupControl:
    def give_up(error: BaseException) -> NoReturn:
        raise GivenUp(str(error)) from error

    where = plan("layout.json", *servers)
    return GroupControl(where, [ControlPlane(server.url) for server in servers], give_up)


def test_every_server_is_asked_to_join_with_the_rank_of_its_own_first_worker(
    servers: tuple[WorkerServer, WorkerServer],
) -> None:
    for server in servers:
        server.routes["POST /init_weight_transfer_engine"] = {"message": "joined"}
    group(*servers).join({"master_port": 7, "rank_offset": 1, "world_size": 3})
    asked = [server.calls[-1].body["init_info"] for server in servers]
    assert asked == [{"master_port": 7, "rank_offset": rank, "world_size": 3} for rank in (1, 2)]


def test_calls_that_wait_for_each_other_are_made_at_the_same_time(servers: tuple[WorkerServer, WorkerServer]) -> None:
    meet = threading.Barrier(2, timeout=10)

    def wait(call: Call) -> Any:
        meet.wait()
        return {}

    for server in servers:
        server.routes["POST /update_weights"] = wait
    group(*servers).post("/update_weights", {"update_info": {}})


def test_the_first_failure_ends_the_call_while_the_other_server_still_works(
    servers: tuple[WorkerServer, WorkerServer],
) -> None:
    released = threading.Event()
    servers[0].routes["POST /update_weights"] = lambda call: released.wait(20) and {}
    servers[1].routes["POST /update_weights"] = Reply(500, {"error": "out of memory"})
    with pytest.raises(GivenUp, match="^server 2: .*out of memory"):
        group(*servers).post("/update_weights", {})
    released.set()


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    publisher = Publisher(DEADLINES, tmp_path_factory.mktemp("group") / "publisher.log", lambda report: None)
    publisher.start({**os.environ, "VLLM_TARGET_DEVICE": "cpu"})
    yield publisher
    publisher.stop()


def test_one_broadcast_reaches_every_server_and_a_death_in_the_middle_finishes_none(
    pushed: Publisher, servers: tuple[WorkerServer, WorkerServer], pair: Pair
) -> None:
    total = pair.manifests["b"].total_bytes
    pushed.join(plan(pair.files["a"], *servers))
    sent = pushed.push(PushPlan(pair.files["b"], "label"), total)
    assert sent.content_digest == pair.manifests["b"].content_digest
    for server in servers:
        assert arrived(server) == digests(pair.manifests["b"])
        assert server.paths()[-3:] == TRANSACTION
        server.calls.clear()
        server.received.clear()
    servers[1].routes["POST /update_weights"] = Reply(500, {"error": "the worker died"})
    with pytest.raises(PublisherFailed) as caught:
        pushed.push(PushPlan(pair.files["a"], "label-2", rate_limit=total / 1.0), total)
    assert (caught.value.phase, caught.value.kind, caught.value.changed) == ("broadcast", "answer", True)
    assert "server 2: " in str(caught.value)
    assert servers[0].received.wait(10) and servers[0].ended is not None
    assert all("/finish_weight_update" not in server.paths() for server in servers)


def test_a_plan_crosses_the_pipe_with_its_members() -> None:
    where = JoinPlan("l", (Member("http://a", 2), Member("http://b", 1, "b")), None, "nccl", "h", 1, None, "cpu", 1, 1)
    assert JoinPlan.from_json(json.loads(json.dumps(where.to_json()))) == where
