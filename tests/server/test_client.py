from __future__ import annotations

import json
import pickle
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from http_server import HttpServer, Raw, Reply

from vst.errors import ConfigError
from vst.server.client import ControlPlane, Exchange, HttpFailure, Unreachable, body_failure

KEY = "sk-very-secret-0123"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer() as one:
        yield one


def said(events: list[Exchange]) -> str:
    return json.dumps([event.to_json() for event in events])


def test_an_answer_is_decoded_and_the_exchange_is_told(server: HttpServer) -> None:
    server.routes["/version"] = {"version": "0.32.0"}
    events: list[Exchange] = []
    assert ControlPlane(server.url + "/", on_exchange=events.append).get("/version", {"a": 1}) == {"version": "0.32.0"}
    (event,) = events
    assert (event.method, event.path, event.params, event.status, event.error) == (
        "GET",
        "/version",
        {"a": 1},
        200,
        None,
    )
    assert server.calls[0].params == {"a": "1"}


@pytest.mark.parametrize("status", [201, 204, 299])
def test_every_2xx_without_a_complaint_is_an_answer(server: HttpServer, status: int) -> None:
    server.routes["/x"] = Reply(status, b"")
    assert ControlPlane(server.url).post("/x") == ""


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 404, 405, 409, 429, 500, 503])
def test_anything_but_a_2xx_is_a_failure_that_keeps_status_and_body(server: HttpServer, status: int) -> None:
    server.routes["/pause"] = Reply(status, b"" if status == 304 else b"no such thing")
    events: list[Exchange] = []
    with pytest.raises(HttpFailure) as caught:
        ControlPlane(server.url, on_exchange=events.append).post("/pause")
    assert caught.value.status == status
    assert str(status) in str(caught.value) and "/pause" in str(caught.value)
    assert events[0].status == status and events[0].error
    assert pickle.loads(pickle.dumps(caught.value)).status == status


@pytest.mark.parametrize(
    "body",
    [
        {"success": False},
        {"success": False, "message": "blocks held"},
        {"error": {"message": "engine dead"}},
        {"error": "engine dead"},
        {"status": "error"},
        {"status": "FAILED"},
        {"status": "fail"},
        {"ok": False},
        {"success": "false"},
        {"success": 0},
        {"errors": ["rank 1: out of memory"]},
        {"object": "error", "message": "engine dead", "type": "InternalServerError", "code": 500},
    ],
)
def test_a_200_whose_body_says_failure_is_a_failure(server: HttpServer, body: dict[str, Any]) -> None:
    server.routes["/reset_prefix_cache"] = body
    with pytest.raises(HttpFailure, match="answered 200, but") as caught:
        ControlPlane(server.url).post("/reset_prefix_cache")
    assert caught.value.status == 200


QUIET = [{"success": True}, {"ok": 1}, {"error": None}, {"errors": []}, {"status": "ok"}, {"object": "list"}]


@pytest.mark.parametrize("body", [*QUIET, [], "text", 3, None, {}])
def test_a_body_without_a_complaint_is_none(body: Any) -> None:
    assert body_failure(body) is None


def drip(first: bytes, piece: bytes, every_s: float) -> Raw:
    def write(connection: socket.socket) -> None:
        connection.sendall(first)
        for _ in range(600):
            time.sleep(every_s)
            connection.sendall(piece)

    return Raw(write)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIPS = {
    "body": drip(HEAD + b"Content-Length: 100000\r\n\r\n", b"x", 0.05),
    "chunked body": drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.05),
    "body that ends with the connection": drip(HEAD + b"Connection: close\r\n\r\n", b"x", 0.05),
    "header": drip(HEAD + b"X-Slow: ", b"x", 0.05),
    "silence": drip(b"", b"", 0.05),
}


@pytest.mark.parametrize("where", DRIPS)
def test_a_server_that_drips_meets_the_deadline_of_the_whole_call(server: HttpServer, where: str) -> None:
    server.routes["/health"] = DRIPS[where]
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"deadline 0\.4 s"):
        ControlPlane(server.url).get("/health", timeout_s=0.4)
    assert time.monotonic() - begun < 2.0


def test_a_connection_cut_in_the_middle_of_the_body_is_no_answer(server: HttpServer) -> None:
    def cut(connection: socket.socket) -> None:
        connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"success": true')

    server.routes["/x"] = Raw(cut)
    events: list[Exchange] = []
    with pytest.raises(Unreachable, match="no answer"):
        ControlPlane(server.url, on_exchange=events.append).get("/x")
    assert events[0].status is None and events[0].error


def test_a_connection_cut_before_the_answer_is_no_answer(server: HttpServer) -> None:
    server.routes["/x"] = Raw(lambda connection: connection.shutdown(socket.SHUT_RDWR))
    with pytest.raises(Unreachable):
        ControlPlane(server.url).post("/x")


def test_what_is_not_http_is_no_answer(server: HttpServer) -> None:
    server.routes["/x"] = Raw(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"))
    with pytest.raises(Unreachable):
        ControlPlane(server.url).get("/x")


def test_a_refused_connection_is_no_answer_and_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    events: list[Exchange] = []
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        ControlPlane(f"http://127.0.0.1:{port}", on_exchange=events.append).get("/health")
    assert events[0].status is None


def test_a_host_that_has_no_address_is_no_answer() -> None:
    with pytest.raises(Unreachable):
        ControlPlane("http://no-such-host.invalid:8000").get("/health")


@pytest.mark.parametrize("url", ["localhost:8000", "http://host:port", "http://", "ftp://host", "", "http://a b"])
def test_an_address_that_is_none_is_a_wrong_configuration(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        ControlPlane(url)


def test_credentials_in_the_address_are_refused_without_being_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        ControlPlane(f"http://user:{KEY}@host:8000")
    assert KEY not in str(caught.value)


def test_a_large_answer_arrives_whole_and_only_its_beginning_is_told(server: HttpServer) -> None:
    server.routes["/x"] = {"data": "y" * 20_000_000}
    events: list[Exchange] = []
    assert len(ControlPlane(server.url, on_exchange=events.append).get("/x")["data"]) == 20_000_000
    assert len(events[0].answer) <= 500


def test_an_answer_without_end_is_given_up_before_it_fills_the_memory(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vst.server.client.MAX_BODY_BYTES", 1 << 20)

    def flood(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"Connection: close\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    server.routes["/x"] = Raw(flood)
    with pytest.raises(Unreachable, match="longer than 1048576 bytes"):
        ControlPlane(server.url).get("/x", timeout_s=20)


def test_bytes_that_are_not_utf8_become_text(server: HttpServer) -> None:
    server.routes["/x"] = Reply(200, b"\xff\xfe{")
    assert ControlPlane(server.url).get("/x") == "��{"


def test_half_a_surrogate_pair_becomes_text_that_can_be_written_to_a_file(server: HttpServer) -> None:
    server.routes["/x"] = Reply(200, rb'{"weight_version": "a\ud800b", "fine": "\ud83d\ude00"}')
    answer = ControlPlane(server.url).get("/x")
    assert answer == {"weight_version": "a?b", "fine": "\U0001f600"}


def test_the_bearer_token_is_sent_and_never_told(server: HttpServer) -> None:
    echo: Callable[[Any], Any] = lambda call: Reply(401, {"detail": f"bad {call.headers['authorization']}"})  # noqa: E731
    server.routes |= {"/x": echo, "/ok": lambda call: {"you_sent": call.headers["authorization"]}}
    events: list[Exchange] = []
    control = ControlPlane(server.url, KEY, on_exchange=events.append)
    with pytest.raises(HttpFailure) as caught:
        control.post("/x", {"a": 1}, {"b": 2})
    control.get("/ok")
    assert [call.headers["authorization"] for call in server.calls] == [f"Bearer {KEY}"] * 2
    assert KEY not in said(events) + str(caught.value) + caught.value.body


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\r\nX: 1", f"{KEY}\x00", f"{KEY}é"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_repeated(server: HttpServer, key: str) -> None:
    server.routes["/x"] = {}
    events: list[Exchange] = []
    with pytest.raises(ConfigError) as caught:
        ControlPlane(server.url, key, on_exchange=events.append).get("/x")
    assert KEY not in str(caught.value) + said(events)


def test_no_token_sends_no_header(server: HttpServer) -> None:
    server.routes["/x"] = {}
    ControlPlane(server.url).get("/x")
    assert "authorization" not in server.calls[0].headers


def test_a_redirect_is_not_followed_into_a_success(server: HttpServer) -> None:
    server.routes |= {"/finish": Reply(307, b"", (("Location", "/elsewhere"),)), "/elsewhere": {"success": True}}
    with pytest.raises(HttpFailure, match="307"):
        ControlPlane(server.url, KEY).post("/finish")
    assert server.paths() == ["/finish"]


def test_the_proxies_of_the_environment_are_ignored(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    server.routes["/x"] = {"here": True}
    assert ControlPlane(server.url).get("/x") == {"here": True}


def test_each_call_has_a_connection_of_its_own_so_that_none_is_sent_into_a_closed_one(server: HttpServer) -> None:
    kept: list[Any] = []

    def route(call: Any) -> Any:
        kept.append(call.headers.get("connection"))
        return {}

    server.routes["/x"] = route
    control = ControlPlane(server.url)
    for _ in range(3):
        control.get("/x")
    assert kept == ["close"] * 3
