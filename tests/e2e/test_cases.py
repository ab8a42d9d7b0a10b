"""Acceptance cases of lanes L1 to L3 on a real server, some with a proxy before it that lies about one thing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx

from e2e.conftest import Live, Run, Vst
from e2e.proxy import Call, Proxy
from vst.checkpoint.manifest import read_manifest

Pair = tuple[Path, Path]
NOTHING_SENT = {"/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/pause", "/resume"}


def refused(run: Run, id: str) -> dict[str, Any]:
    """A run that was refused by one check before it changed anything."""
    assert run.code == 11, run.out
    assert not NOTHING_SENT & set(run.posts())
    assert run.check(id)["outcome"] == "refused"
    return run.check(id)


class Finishes:
    """Counts the finished updates that pass, so that a lie can begin at a chosen one."""

    def __init__(self) -> None:
        self.count = 0

    def see(self, call: Call) -> None:
        self.count += (call.method, call.path) == ("POST", "/finish_weight_update")


def test_k9_probes_that_cannot_tell_a_from_b_are_inconclusive(
    ladder: Run, live: Live, vst: Vst, pair: Pair, tmp_path: Path
) -> None:
    """B differs from A only in the embedding of a token that no probe has."""
    b = tmp_path / "b"
    shutil.copytree(pair[0], b)
    entry = read_manifest(b).by_name["model.embed_tokens.weight"]
    few = ["oracle.probes=1", "oracle.max_tokens=8", "oracle.output_tokens=1"]
    used = set(json.loads((ladder.dir / "record-model-1.json").read_text())["answers"][-1]["prompt"][:8])
    row = next(token for token in range(entry.shape[0]) if token not in used)
    with (b / entry.shard).open("r+b") as file:
        file.seek(entry.offset + row * entry.shape[1] * 2)
        file.write(bytes.fromhex("803f") * 4)
    run = vst("lane=L3", *few, *live.attach(pair[0], b))
    assert run.code == 12, run.out
    assert "probes insensitive" in run.check("reference.distinct")["reason"]


def test_k13_log_probabilities_off_by_more_than_the_spread_fail(ladder: Run, live: Live, vst: Vst, pair: Pair) -> None:
    finished = Finishes()

    def nudge(call: Call, status: int, body: Any) -> tuple[int, Any]:
        finished.see(call)
        if call.path == "/v1/completions" and finished.count >= 3 and body["choices"][0].get("prompt_logprobs"):
            for position in body["choices"][0]["prompt_logprobs"][1:]:
                for value in position.values():
                    value["logprob"] += 1e-5
        return status, body

    with Proxy(live.url, after=nudge) as proxy:
        run = vst("lane=L3", *live.attach(*pair, proxy.url))
    assert run.code == 10, run.out
    check = run.check("transition.to_b")
    assert check["outcome"] == "fail"
    assert check["observed"][0]["token_changes"] == 0
    assert 0 < check["observed"][0]["largest_difference"] < 1e-4


def test_k14_repeats_that_disagree_are_inconclusive(live: Live, vst: Vst, pair: Pair) -> None:
    asked = [0]

    def jitter(call: Call, status: int, body: Any) -> tuple[int, Any]:
        if call.path == "/v1/completions":
            asked[0] += 1
            body["choices"][0]["logprobs"]["tokens"][0] = f"token_id:{asked[0] % 300}"
        return status, body

    with Proxy(live.url, after=jitter) as proxy:
        run = vst("lane=L2", *live.attach(*pair, proxy.url))
    assert run.code == 12, run.out
    assert run.check("oracle.repeatable")["outcome"] == "inconclusive"
    assert [lane["lane"] for lane in run.verdict["lanes"]] == ["L0", "L1"]


def test_k20_another_world_size_than_declared_is_refused(live: Live, vst: Vst, pair: Pair) -> None:
    run = vst("lane=L2", *live.attach(*pair), "server.tensor_parallel_size=2")
    assert "world size 1, declared are 2" in refused(run, "server.world")["reason"]


def test_k21_a_sleeping_server_is_refused(live: Live, vst: Vst, pair: Pair) -> None:
    httpx.post(f"{live.url}/sleep", params={"level": 1}, timeout=30, trust_env=False).raise_for_status()
    try:
        run = vst("lane=L2", *live.attach(*pair))
        publish = vst("lane=publish", *live.attach(*pair))
    finally:
        httpx.post(f"{live.url}/wake_up", timeout=30, trust_env=False).raise_for_status()
    assert "wake" in refused(run, "server.state")["reason"]
    refused(publish, "update.asleep_refused")


def test_k25_cached_tokens_of_the_old_weights_fail(ladder: Run, live: Live, vst: Vst, pair: Pair) -> None:
    """This vLLM empties its cache with the finish; a server that does not is seen by its own report."""
    finished = Finishes()

    def keep(call: Call, status: int, body: Any) -> tuple[int, Any]:
        finished.see(call)
        if call.path == "/v1/completions" and finished.count >= 3 and call.body["max_tokens"] == 1:
            body["usage"]["prompt_tokens_details"] = {"cached_tokens": 128}
        return status, body

    with Proxy(live.url, after=keep) as proxy:
        run = vst("lane=L3", "lane.controls=none", *live.attach(*pair, proxy.url))
    assert run.code == 10, run.out
    assert run.check("cache.cold")["outcome"] == "fail"
    assert "128 cached tokens of the old weights" in run.check("cache.cold")["reason"]
    assert run.check("transition.to_b")["outcome"] == "pass"


def test_k26_unreported_cached_tokens_are_inconclusive_for_the_cache_alone(
    ladder: Run, live: Live, vst: Vst, pair: Pair
) -> None:
    def strip(call: Call, status: int, body: Any) -> tuple[int, Any]:
        if call.path == "/v1/completions":
            body["usage"].pop("prompt_tokens_details", None)
        return status, body

    with Proxy(live.url, after=strip) as proxy:
        run = vst("lane=L3", "lane.controls=none", *live.attach(*pair, proxy.url))
    assert run.code == 12, run.out
    assert run.check("cache.cold")["outcome"] == "inconclusive"
    assert run.check("transition.to_b")["outcome"] == run.check("transition.back")["outcome"] == "pass"


def test_k38_a_reference_from_other_flags_is_refused_with_the_keys(
    two_workers: Run, live: Live, vst: Vst, pair: Pair
) -> None:
    stored = [json.loads(path.read_text()) for path in (vst.cache / "references").glob("*.json")]
    paths = list((vst.cache / "references").glob("*.json"))
    wanted = [
        path
        for path, one in zip(paths, stored, strict=True)
        if one["key"]["flags"][2] == "2" and one["record"]["claim"] == "B"
    ]
    run = vst("lane=L3", f"oracle.reference='{wanted[0]}'", *live.attach(*pair))
    assert run.code == 11, run.out
    check = run.check("reference.comparable")
    assert "references not comparable" in check["reason"]
    assert "parallel_config.tensor_parallel_size" in check["observed"]


def test_k39_another_version_than_the_publishers_is_refused(live: Live, vst: Vst, pair: Pair) -> None:

    def claim(call: Call, status: int, body: Any) -> tuple[int, Any]:
        return (status, {"version": "0.31.0"}) if call.path == "/version" else (status, body)

    with Proxy(live.url, after=claim) as proxy:
        run = vst("lane=L2", *live.attach(*pair, proxy.url))
    assert "the server runs vLLM 0.31.0, the publisher has" in refused(run, "server.dialect")["reason"]


def test_cache_reset_that_answers_success_false_fails_without_a_resume(live: Live, vst: Vst, pair: Pair) -> None:
    def held(call: Call, status: int, body: Any) -> tuple[int, Any]:
        return (200, {"success": False}) if call.path == "/reset_prefix_cache" else (status, body)

    with Proxy(live.url, after=held) as proxy:
        run = vst("lane=L2", *live.attach(*pair, proxy.url))
    assert run.code == 10, run.out
    assert "success is false" in run.check("transfer.completed")["reason"]
    assert not {"/start_weight_update", "/resume"} & set(run.posts())
    assert run.verdict["server"]["state"] == "tainted"


def test_lane_final_model_leaves_a_on_an_attached_server(ladder: Run, live: Live, vst: Vst, pair: Pair) -> None:
    run = vst("lane=L3", "lane.final=model", "lane.controls=head", *live.attach(*pair))
    assert run.code == 0, run.out
    assert run.verdict["server"] == {"state": "serving", "holds": "model", "left": "serving"}
    assert live.serving()
