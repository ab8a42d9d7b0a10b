"""Real faults of vLLM 0.32 on a CPU: the tool must end FAIL_CLOSED and say what the server looks like."""

from __future__ import annotations

from pathlib import Path

from e2e.checkpoints import mixtral, qwen2_tied, write_pair
from e2e.conftest import Run, Vst, forked


def run_pair(vst: Vst, a: Path, b: Path, *more: str) -> Run:
    return vst("model=local", f"model.path='{a}'", f"checkpoint.path='{b}'", "lane.cycles=1", *more)


def test_tied_head_that_keeps_the_old_embedding_is_caught(vst: Vst, warm: tuple[str, ...], tmp_path: Path) -> None:
    run = run_pair(vst, *write_pair(tmp_path, *qwen2_tied()), *forked(warm))
    assert run.code == 10, run.out
    check = run.check("transition.to_b")
    assert check["outcome"] == "fail"
    assert "first differing probe 0" in check["reason"]
    assert "looks like neither A nor B" in check["reason"] or "equals A in part" in check["reason"]
    assert run.verdict["server"]["state"] == "tainted"
    assert check["reason"] in " ".join(run.out.split()) or "looks like neither" in run.out


def test_experts_that_are_processed_twice_are_caught(vst: Vst, warm: tuple[str, ...], tmp_path: Path) -> None:
    run = run_pair(vst, *write_pair(tmp_path, *mixtral()), *forked(warm))
    assert run.code == 10, run.out
    failing = [check for lane in run.verdict["lanes"] for check in lane["checks"] if check["outcome"] == "fail"]
    assert failing[0]["id"] in ("identity.record", "transition.to_b")
    assert "first" in failing[0]["reason"]
    assert run.verdict["server"]["state"] == "tainted"
