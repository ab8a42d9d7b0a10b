"""A real server that drafts with a tiny model: the draft's own transaction, and a right target with a stale draft."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.conftest import Run, Vst
from vst.provenance.__main__ import check_run
from vst.provenance.schema import validate_run

MODEL = ["model=draftmodel", "lane.cycles=1", "lane.controls=none"]


def drafts(pair: tuple[Path, Path]) -> list[str]:
    """Each checkpoint is its own draft, which then proposes what the model would have said."""
    a, b = pair
    given = {"model.path": a, "model.draft_path": a, "checkpoint.path": b, "checkpoint.draft_path": b}
    return [*MODEL, *(f"{key}='{path}'" for key, path in given.items())]


@pytest.fixture(scope="module")
def drafted(vst: Vst, pair: tuple[Path, Path]) -> Run:
    return vst("lane=L5", "eval.max_tokens=8", *drafts(pair))


def test_target_and_draft_are_updated_one_after_the_other_and_both_are_judged(drafted: Run) -> None:
    assert drafted.code == 0, drafted.out
    files = [path for path in drafted.dir.glob("weight-update-*.json") if ".meta" not in path.name]
    updates = [json.loads(path.read_text()) for path in files]
    roles = [update["claimed"]["role"] for update in sorted(updates, key=lambda update: update["number"])]
    assert roles == [role for name in roles[::2] for role in (name, f"draft-{name}")]
    posts = drafted.posts()
    assert posts.count("/start_draft_weight_update") == posts.count("/start_weight_update") == len(roles) // 2
    assert (drafted.dir / "manifest-draft-checkpoint.json").exists()


def test_a_stale_draft_is_seen_between_the_two_transactions(drafted: Run) -> None:
    checks = [check for lane in drafted.verdict["lanes"] for check in lane["checks"]]
    in_l3, in_l5 = (check["observed"] for check in checks if check["id"] == "draft.acceptance")
    assert in_l3["method"] == "draft_model" and in_l3["declared"]
    fresh = in_l3["arrivals"][0]["found"]
    assert in_l3["stale"]["rate"] < fresh["rate"] == 1.0
    assert [one["state"] for one in in_l5["arrivals"]] == ["evaluation-identity", "evaluation-post"]
    assert all(one["found"] == one["expected"] for one in [*in_l3["arrivals"], *in_l5["arrivals"]])


def test_the_label_stays_that_of_the_model(drafted: Run) -> None:
    assert drafted.check("transition.label")["warnings"] == []


def test_the_bundle_of_a_run_with_a_draft_verifies_and_is_judged_again(drafted: Run) -> None:
    report = check_run(drafted.dir, rerun_checks=True)
    assert report.lines()[0].startswith("verified"), report.lines()
    assert validate_run(drafted.dir) == []
