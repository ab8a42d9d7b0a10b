"""The whole ladder on real CPU servers: the embedded default, several workers, awkward directories."""

from __future__ import annotations

import json
from pathlib import Path

import psutil

from e2e.conftest import Run, Vst, forked


def lanes(run: Run) -> list[str]:
    return [f"{lane['lane']} {lane['verdict']}" for lane in run.verdict["lanes"]]


def test_embedded_default_passes_every_lane(ladder: Run) -> None:
    assert ladder.code == 0, ladder.out
    assert lanes(ladder) == ["L0 PASS", "L1 PASS", "L2 PASS", "L3 PASS"]
    assert ladder.verdict["covered"]["tensors"] == "30 of 30"
    assert ladder.verdict["server"]["holds"] == "checkpoint"


def test_log_probabilities_equal_the_cold_start_exactly(ladder: Run) -> None:
    assert ladder.verdict["noise_floor"] == 0.0
    for id in ("identity.record", "transition.to_b", "transition.back", "transition.final"):
        check = ladder.check(id)
        assert check["tolerance"] == 0.0
        assert [one["largest_difference"] for one in check["observed"]] == [0.0] * len(check["observed"])
    cold = json.loads((ladder.dir / "record-reference.json").read_text())
    final = json.loads((ladder.dir / "record-checkpoint-final.json").read_text())
    assert [a["prompt_logprobs"] for a in cold["answers"]] == [a["prompt_logprobs"] for a in final["answers"]]
    assert [a["output_logprobs"] for a in cold["answers"]] == [a["output_logprobs"] for a in final["answers"]]


def test_weights_are_sent_only_while_paused_and_resumed_only_after_the_caches_were_reset(ladder: Run) -> None:
    moves = (
        "/pause",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/reset_prefix_cache",
        "/resume",
    )
    posts = [path for path in ladder.posts() if path in moves]
    one = ["/pause", "/reset_prefix_cache", *moves[1:4], "/reset_prefix_cache", "/resume"]
    assert posts == one * (len(posts) // len(one))
    assert len(posts) // len(one) == 2 + 4 + 7 + 1


def test_every_transaction_says_what_left_the_machine(ladder: Run) -> None:
    updates = [json.loads(path.read_text()) for path in sorted(ladder.dir.glob("weight-update-?.json"))]
    honest = [update for update in updates if update["from_other"] is None]
    assert honest
    for update in honest:
        assert update["outcome"] == "finished"
        assert update["sent"]["content_digest"] == update["claimed"]["content_digest"]
        assert update["sent"]["bytes"] == 902912


def test_no_process_is_left(ladder: Run) -> None:
    pids = {event["pid"] for kind in ("server_ready", "publisher_start") for event in ladder.events(kind)}
    assert len(pids) == 3
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(ladder.dir) in " ".join(p.info["cmdline"] or [])]


def test_two_workers_pass_and_equal_their_cold_start_exactly(two_workers: Run) -> None:
    run = two_workers
    assert run.code == 0, run.out
    for id in ("transition.to_b", "transition.back", "transition.final"):
        assert [one["largest_difference"] for one in run.check(id)["observed"]] == [0.0]
    assert run.check("server.world")["observed"] == 2


def test_a_directory_with_spaces_and_other_letters_works(
    ladder: Run, vst: Vst, warm: tuple[str, ...], tmp_path: Path
) -> None:
    place = tmp_path / "ein Ordner mit Ä, и пробелами"
    place.mkdir()
    run = vst("lane=L2", "hydra.run.dir='ergebnis é'", "paths.cache='mein cache'", *forked(warm), cwd=place)
    assert run.code == 0, run.out
    assert (place / "ergebnis é" / "verdict.json").exists()
    assert (place / "mein cache" / "tiny" / "a" / "config.json").exists()
