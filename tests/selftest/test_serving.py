"""The healthy double behaves as a vLLM does, over real HTTP; its faults are what they are called."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from safetensors.torch import load_file, save_file

from selftest.doubles import Asked, Stream, completion, double
from vst.selftest.fault import make
from vst.server.client import ControlPlane
from vst.server.facts import ROUTES, read_facts
from vst.server.observe import observe

PROMPT = list(range(40, 80))
SLOW = ("--step-ms=5",)


@pytest.fixture(scope="module")
def shared(a: Path) -> Iterator[Asked]:
    with double(a) as asked:
        yield asked


@pytest.fixture
def slow(a: Path) -> Iterator[Asked]:
    with double(a, flags=SLOW) as asked:
        yield asked


def paused_stream(asked: Asked, mode: str) -> Stream:
    """A stream with a few tokens at the moment when the server was paused."""
    stream = Stream(asked, completion(PROMPT, 60))
    stream.wait(5)
    assert asked.post("/pause", mode=mode).status_code == 200
    return stream


def test_it_says_that_it_is_no_vllm(shared: Asked) -> None:
    facts = read_facts(ControlPlane(shared.url))
    assert facts.version == "0.32.0+vst.scripted"
    assert "not a vLLM" in facts.config["scripted"]
    assert "not a vLLM" in facts.system["system"]
    assert facts.models[0]["owned_by"] == "vst.scripted"


def test_it_has_the_routes_and_nothing_else(shared: Asked) -> None:
    assert read_facts(ControlPlane(shared.url)).routes == ROUTES
    assert shared.post("/collective_rpc", {}).status_code == 404
    assert shared.http.get("/pause").status_code == 405


def test_what_is_no_number_is_refused_in_vllms_words(a: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(a, tmp_path / "broken")
    shard = next(iter(sorted(broken.glob("*.safetensors"))))
    tensors = load_file(shard)
    first = sorted(tensors)[0]
    tensors[first].fill_(float("nan"))
    save_file(tensors, shard)
    with double(broken) as asked:
        answer = asked.post("/v1/completions", completion(PROMPT, 2, logprobs=2, prompt_logprobs=0))
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith("Out of range float values are not JSON compliant")
        assert asked.tokens(PROMPT, 2)


def test_an_answer_has_vllms_form(shared: Asked) -> None:
    body = shared.ask(PROMPT, 3, logprobs=2, prompt_logprobs=0)
    choice = body["choices"][0]
    assert [int(text.removeprefix("token_id:")) for text in choice["logprobs"]["tokens"]] == choice["token_ids"]
    assert choice["prompt_logprobs"][0] is None
    assert [list(one) for one in choice["prompt_logprobs"][1:]] == [[str(token)] for token in PROMPT[1:]]
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 3
    assert max(choice["logprobs"]["top_logprobs"][0].values()) == choice["logprobs"]["token_logprobs"][0]


def test_a_seeded_draw_repeats_and_another_seed_draws_otherwise(shared: Asked) -> None:
    def draw(seed: int) -> list[int]:
        return list(shared.ask(PROMPT, 30, temperature=1.0, seed=seed)["choices"][0]["token_ids"])

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_repeated_prompt_uses_the_prefix_cache_until_it_is_reset(a: Path) -> None:
    with double(a) as asked:
        first, second = asked.ask(PROMPT), asked.ask(PROMPT)
        assert asked.post("/reset_prefix_cache").json() == {"success": True}
        third = asked.ask(PROMPT)
    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (first, second, third)]
    assert cached == [0, 32, 0]
    assert len({tuple(one["choices"][0]["token_ids"]) for one in (first, second, third)}) == 1


@pytest.mark.parametrize("body", [{"prompt": []}, {"prompt": [999]}, {"prompt": [1], "max_tokens": 9999}, [], {"n": 2}])
def test_a_request_that_cannot_be_answered_is_refused(shared: Asked, body: object) -> None:
    assert shared.post("/v1/completions", body).status_code == 400


def test_keep_freezes_a_stream_and_goes_on_with_the_same_tokens(slow: Asked) -> None:
    whole = slow.tokens(PROMPT, 60)
    stream = paused_stream(slow, "keep")
    time.sleep(0.1)
    frozen = len(stream.tokens)
    time.sleep(0.3)
    assert len(stream.tokens) == frozen < 60
    assert slow.post("/reset_prefix_cache").json() == {"success": False}
    assert slow.post("/reset_prefix_cache", reset_running_requests=True).json() == {"success": True}
    slow.post("/resume")
    assert stream.result() == whole
    assert stream.finish == "length"


def test_abort_ends_a_stream_and_wait_lets_it_end(slow: Asked) -> None:
    whole = slow.tokens(PROMPT, 60)
    aborted = paused_stream(slow, "abort")
    assert aborted.result() == whole[: len(aborted.tokens)]
    assert aborted.finish == "abort"
    slow.post("/resume")
    waited = paused_stream(slow, "wait")
    assert waited.result() == whole
    assert slow.get("/is_paused") == {"is_paused": True}


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
def test_a_request_that_comes_during_a_pause_is_held(slow: Asked, mode: str) -> None:
    slow.post("/pause", mode=mode)
    late = Stream(slow, completion(PROMPT, 4))
    time.sleep(0.3)
    assert late.tokens == []
    slow.post("/resume")
    assert len(late.result()) == 4


def test_a_caller_that_goes_away_is_forgotten(slow: Asked) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{slow.url}/v1/completions", json=completion(PROMPT, 400), trust_env=False, timeout=0.2)
    until = time.monotonic() + 10
    while slow.double.engines[0].running and time.monotonic() < until:
        time.sleep(0.05)
    assert slow.double.engines[0].running == []


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_is_seen_in_flag_and_gauge_and_partial_wakes_do_not_resume(a: Path, level: int) -> None:
    with double(a) as asked:
        control = ControlPlane(asked.url)
        asked.post("/sleep", level=level)
        assert (observe(control).sleeping, observe(control).level) == (True, level)
        assert asked.post("/wake_up", tags="kv_cache").json()["status"] == "sleeping"
        assert (observe(control).sleeping, observe(control).level) == (True, level)
        assert asked.post("/wake_up", tags="weights").json()["status"] == "awake"
        assert (observe(control).paused, observe(control).level) == (False, 0)


def test_level_1_comes_back_to_the_same_answers_and_level_2_does_not(a: Path) -> None:
    with double(a) as asked:
        before = asked.tokens(PROMPT)
        for level, same in ((1, True), (2, False)):
            asked.post("/sleep", level=level)
            asked.post("/wake_up")
            assert (asked.tokens(PROMPT) == before) is same


def test_a_request_while_an_update_is_open_kills_the_engine(a: Path) -> None:
    with double(a) as asked:
        asked.post("/start_weight_update")
        answer = asked.post("/v1/completions", completion(PROMPT, 4))
        assert answer.status_code == 500
        assert "an update was open" in asked.deaths[0]
        assert asked.http.get("/health").status_code == 503


def test_the_order_of_a_transaction_is_kept(shared: Asked) -> None:
    assert shared.post("/finish_weight_update", {}).status_code == 500
    assert shared.post("/update_weights", {"update_info": {"names": []}}).status_code == 500


def test_ranks_of_data_parallelism_answer_alike_and_have_caches_of_their_own(a: Path) -> None:
    with double(a, flags=("--data-parallel-size=2",)) as asked:
        assert asked.get("/get_world_size")["world_size"] == 2
        answers = []
        for rank in ("0", "0", "1"):
            asked.http.headers["X-data-parallel-rank"] = rank
            answers.append(asked.ask(PROMPT))
    assert len({tuple(one["choices"][0]["token_ids"]) for one in answers}) == 1
    assert [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in answers] == [0, 32, 0]


def test_a_pause_that_is_ignored_lets_streams_go_on(a: Path) -> None:
    with double(a, make("pause_ignored"), flags=SLOW) as asked:
        stream = paused_stream(asked, "keep")
        assert len(stream.result()) == 60


@pytest.mark.parametrize(("kind", "count"), [("keep_drops", 59), ("keep_doubles", 61), ("keep_changes", 60)])
def test_a_keep_that_is_not_one_shows_in_the_tokens(a: Path, kind: str, count: int) -> None:
    with double(a, make(kind), flags=SLOW) as asked:
        whole = asked.tokens(PROMPT, 60)
        stream = paused_stream(asked, "keep")
        asked.post("/resume")
        assert len(stream.result()) == count
        assert stream.tokens != whole


def test_a_call_is_broken_from_its_first_to_its_last_time(a: Path) -> None:
    with double(a, make("answer", phase="pause", status=418, first=2, last=2)) as asked:
        assert [asked.post("/pause").status_code for _ in range(3)] == [200, 418, 200]


def test_a_call_is_counted_from_when_its_fault_is_armed(a: Path) -> None:
    with double(a, make("answer", phase="label", status=418, update=1, first=2, last=2)) as asked:
        before = [asked.http.get("/weight_info").status_code for _ in range(3)]
        asked.post("/start_weight_update")
        after = [asked.http.get("/weight_info").status_code for _ in range(3)]
    assert (before, after) == ([200, 200, 200], [200, 418, 200])


def test_an_answer_may_be_broken_after_the_call_was_obeyed(a: Path) -> None:
    with double(a, make("answer", phase="pause", status=200, body={"error": "no"}, when="after")) as asked:
        assert asked.post("/pause").json() == {"error": "no"}
        assert asked.get("/is_paused") == {"is_paused": True}


def test_a_cut_connection_is_no_answer(a: Path) -> None:
    with double(a, make("cut", phase="label")) as asked, pytest.raises(httpx.TransportError):
        asked.get("/weight_info")


def test_a_cut_stream_ends_in_the_middle(a: Path) -> None:
    with double(a, make("cut", phase="generate", when="after")) as asked:
        stream = Stream(asked, completion(PROMPT, 20))
        stream.result()
    assert stream.error is not None
    assert stream.finish is None


def test_an_order_of_moves_strikes_only_when_it_has_come(a: Path) -> None:
    with double(a, make("order", moves=["pause", "sleep", "wake"], amount=0.5)) as asked:
        before = asked.tokens(PROMPT)
        for path in ("/pause", "/resume", "/sleep", "/wake_up"):
            assert asked.tokens(PROMPT) == before if path == "/pause" else True
            asked.post(path)
        assert asked.tokens(PROMPT) != before


def test_somebody_else_may_change_label_and_content(a: Path) -> None:
    with double(a, make("foreign_update", after=1, label="theirs", amount=0.5)) as asked:
        before = asked.tokens(PROMPT)
        assert asked.get("/weight_info") == {"weight_version": "theirs"}
        assert asked.tokens(PROMPT) != before
