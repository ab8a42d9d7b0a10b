"""The relay through which two of the faults reach a push: what passes, what is changed, and what is cut."""

from __future__ import annotations

import json
import threading
import time

import pytest
from http_server import Call, HttpServer, Reply

from vst.lanes.faults.relay import UPDATE, Relay, Rule
from vst.lanes.faults.shot import Shot
from vst.lanes.faults.update_refused import _without_a_shape
from vst.server.client import ControlPlane, HttpFailure, Unreachable

INFO = {"update_info": {"names": ["a", "b"], "dtype_names": ["bf16", "bf16"], "shapes": [[1], [2]]}}


def test_what_the_rule_does_not_mean_passes_unchanged_with_the_key_and_the_answer() -> None:
    server, shot = HttpServer({"POST /start_weight_update": Reply(409, {"detail": "an update is open"})}), Shot()
    with (
        Relay(server_url(server), Rule(), shot, 10.0) as relay,
        pytest.raises(HttpFailure, match="409.*an update is open"),
    ):
        ControlPlane(relay.url, "sk-key").post("/start_weight_update", {"a": [1]})
    assert server.calls[0].body == {"a": [1]}
    assert server.calls[0].headers["authorization"] == "Bearer sk-key"
    assert shot.at is None
    server.close()


def test_the_update_arrives_with_a_shape_too_few_and_that_is_when_the_fault_struck() -> None:
    server, shot = HttpServer({f"POST {UPDATE}": {}, "POST /finish_weight_update": {}}), Shot()
    with Relay(server_url(server), Rule(change=_without_a_shape), shot, 10.0) as relay:
        control = ControlPlane(relay.url)
        control.post("/finish_weight_update", INFO)
        assert shot.at is None
        control.post(UPDATE, INFO)
    assert server.calls[0].body == INFO
    assert server.calls[1].body["update_info"]["shapes"] == [[1]]
    assert shot.at is not None
    server.close()


def test_a_connection_is_cut_in_the_middle_of_the_call_and_the_server_hears_all_of_it() -> None:
    heard, released = threading.Event(), threading.Event()

    def work(call: Call) -> dict[str, str]:
        heard.set()
        released.wait(10)
        return {}

    server, shot, begun = HttpServer({f"POST {UPDATE}": work}), Shot(), time.monotonic()
    with Relay(server_url(server), Rule(cut_after=lambda path: 0.3 if path == UPDATE else None), shot, 10.0) as relay:
        with pytest.raises(Unreachable):
            ControlPlane(relay.url).post(UPDATE, INFO, timeout_s=20)
        assert heard.is_set() and 0.25 < time.monotonic() - begun < 8
        assert shot.at is not None and shot.at - begun > 0.25
        released.set()
    assert json.dumps(server.calls[0].body) == json.dumps(INFO)
    server.close()


def server_url(server: HttpServer) -> str:
    return f"http://127.0.0.1:{server.port}"
