from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_server import HttpServer, Reply

from vst.errors import TransportError
from vst.server.client import ControlPlane, HttpFailure
from vst.server.facts import ROUTES, asleep, read_facts, read_instance, read_start_time

METRICS = b"# HELP x\nprocess_start_time_seconds 1.7e+09\nvllm:num_requests 0\n"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    routes: dict[str, Any] = {f"OPTIONS {route}": Reply(405, {"detail": "Method Not Allowed"}) for route in ROUTES}
    routes |= {
        "GET /version": {"version": "0.32.0"},
        "GET /v1/models": {"data": [{"id": "tiny", "root": "/ckpt/a", "max_model_len": 512}]},
        "GET /get_world_size": {"world_size": 2},
        "GET /is_paused": {"is_paused": False},
        "GET /is_sleeping": {"is_sleeping": False},
        "GET /weight_info": {"weight_version": "default"},
        "GET /metrics": Reply(200, METRICS),
        "GET /server_info": {
            "vllm_config": {"instance_id": "77", "weight_transfer_config": {"backend": "vst_gloo"}},
            "vllm_env": {"VLLM_PORT": None},
            "system_env": {"torch_version": "2.13.0"},
        },
    }
    with HttpServer(routes) as one:
        yield one


def test_everything_is_asked_and_nothing_is_posted(server: HttpServer) -> None:
    facts = read_facts(ControlPlane(server.url))
    assert (facts.version, facts.world_size, facts.paused, facts.sleeping) == ("0.32.0", 2, False, False)
    assert (facts.weight_version, facts.transfer_backend, facts.max_model_len) == ("default", "vst_gloo", 512)
    assert facts.instance.to_json() == {"start_time": "1.7e+09", "instance_id": "77"}
    assert set(facts.routes) == set(ROUTES)
    assert server.paths("POST") == []


@pytest.mark.parametrize("gone", ["/get_world_size", "/is_paused", "/is_sleeping", "/weight_info"])
@pytest.mark.parametrize("status", [404, 405])
def test_a_route_that_is_not_there_gives_none(server: HttpServer, gone: str, status: int) -> None:
    server.routes[f"GET {gone}"] = Reply(status, {"detail": "none"})
    server.routes[f"OPTIONS {gone}"] = Reply(404, {"detail": "none"})
    facts = read_facts(ControlPlane(server.url))
    assert gone not in facts.routes
    assert None in (facts.world_size, facts.paused, facts.sleeping, facts.weight_version)


def test_a_server_without_development_routes_is_still_described(server: HttpServer) -> None:
    server.routes = {path: route for path, route in server.routes.items() if path in ("GET /version", "GET /v1/models")}
    facts = read_facts(ControlPlane(server.url))
    assert facts.routes == () and facts.config == {} and facts.transfer_backend is None
    assert facts.instance.to_json() == {"start_time": None, "instance_id": None}


def test_a_route_that_breaks_is_not_taken_for_one_that_is_missing(server: HttpServer) -> None:
    server.routes["GET /is_sleeping"] = Reply(500, b"boom")
    with pytest.raises(HttpFailure, match="500"):
        read_facts(ControlPlane(server.url))


@pytest.mark.parametrize(
    "answer", ["<html>", [], {}, {"data": None}, {"data": "tiny"}, {"data": ["tiny"]}, {"data": {"a": 1}}]
)
def test_a_list_of_models_that_is_none_is_a_transport_error(server: HttpServer, answer: Any) -> None:
    server.routes["GET /v1/models"] = answer
    with pytest.raises(TransportError, match="/v1/models"):
        read_facts(ControlPlane(server.url))


@pytest.mark.parametrize(
    "answer",
    [
        "text",
        [],
        None,
        {"vllm_config": "x", "vllm_env": 3, "system_env": []},
        {"vllm_config": {"weight_transfer_config": "nccl"}},
    ],
)
def test_a_server_info_of_another_shape_gives_no_facts_and_no_traceback(server: HttpServer, answer: Any) -> None:
    server.routes["GET /server_info"] = answer
    facts = read_facts(ControlPlane(server.url))
    assert facts.transfer_backend is None and facts.env == {} and facts.system == {}


def test_the_start_time_is_found_with_and_without_labels(server: HttpServer) -> None:
    server.routes["GET /metrics"] = Reply(200, b'process_start_time_seconds{pid="1"} 42.5\n')
    assert read_start_time(ControlPlane(server.url)) == "42.5"
    server.routes["GET /metrics"] = Reply(200, b"not_process_start_time_seconds 1\n")
    assert read_start_time(ControlPlane(server.url)) is None


def test_another_process_is_another_instance(server: HttpServer) -> None:
    before = read_instance(ControlPlane(server.url))
    server.routes["GET /metrics"] = Reply(200, METRICS.replace(b"1.7e+09", b"1.8e+09"))
    assert read_instance(ControlPlane(server.url)) != before


GAUGE = 'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="awake"}} {}\n'


@pytest.mark.parametrize(
    ("flag", "paused", "metrics", "expected"),
    [
        (False, False, "", False),
        (True, False, "", True),
        (True, True, GAUGE.format("1.0"), False),
        (True, True, GAUGE.format("0.0"), True),
        (True, True, GAUGE.format("1.0") + GAUGE.format("0.0"), True),
        (True, True, "", None),
        (None, False, GAUGE.format("1.0"), None),
    ],
)
def test_a_paused_server_is_asleep_only_by_its_gauge(
    flag: bool | None, paused: bool, metrics: str, expected: bool | None
) -> None:
    assert asleep(flag, paused, metrics) is expected
