"""A real server that drafts with a tiny model: the draft's own transaction, and a right target with a stale draft."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Vst
from e2e.test_controls import open_session
from vst.lanes import transition
from vst.lanes.drafts import push_draft
from vst.lanes.ladder import climb
from vst.lanes.references import obtain
from vst.lanes.servers import close
from vst.lanes.session import Session
from vst.lanes.transaction import Push
from vst.provenance.schema import validate_run
from vst.transfer.plan import Sent
from vst.verdict import Outcome, Verdict

SHORT = ["lane=L5", "eval.max_tokens=8", "lane.cycles=1", "lane.controls=none"]


@dataclass
class Drafted:
    """A ladder up to L5 on a server with a draft, which still runs."""

    session: Session
    verdict: Verdict

    def check(self, lane: str, id: str) -> Any:
        (found,) = [check for one in self.verdict.lanes if one.lane == lane for check in one.checks if check.id == id]
        return found

    def posts(self) -> list[str]:
        lines = (self.session.run / "events.jsonl").read_text().splitlines()
        events = [event for event in map(json.loads, lines) if event["kind"] == "publisher_http"]
        return [str(event["path"]) for event in events]


@pytest.fixture(scope="module")
def drafted(vst: Vst, pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drafted]:
    """Each checkpoint is its own draft, which then proposes what the model would have said."""
    a, b = pair
    given = {"model.path": a, "model.draft_path": a, "checkpoint.path": b, "checkpoint.draft_path": b}
    paths = [f"{key}='{path}'" for key, path in given.items()]
    overrides = ["model=draftmodel", *SHORT, *paths, f"paths.cache='{vst.cache}'"]
    found = Drafted(open_session(overrides, tmp_path_factory.mktemp("drafted") / "run"), Verdict("L5"))
    try:
        climb(found.session, found.verdict, lambda lane: None)
        yield found
    finally:
        close(found.session)


def test_target_and_draft_are_updated_one_after_the_other_and_both_are_judged(drafted: Drafted) -> None:
    assert drafted.verdict.passed, drafted.verdict.failing()
    files = [path for path in drafted.session.run.path.glob("weight-update-*.json") if ".meta" not in path.name]
    updates = sorted((json.loads(path.read_text()) for path in files), key=lambda update: update["number"])
    roles = [update["claimed"]["role"] for update in updates]
    assert len(roles) > 12
    assert roles == [role for name in roles[::2] for role in (name, f"draft-{name}")]
    starts = [path for path in drafted.posts() if "start" in path]
    assert starts == ["/start_weight_update", "/start_draft_weight_update"] * (len(roles) // 2)
    assert (drafted.session.run / "manifest-draft-checkpoint.json").exists()
    assert validate_run(drafted.session.run.path) == []


def test_the_drafts_are_audited_like_the_models(drafted: Drafted) -> None:
    assert drafted.check("L0", "draft.files.pair").outcome is Outcome.PASS


def test_a_stale_draft_is_seen_between_the_two_transactions(drafted: Drafted) -> None:
    in_l3, in_l5 = (drafted.check(lane, "draft.acceptance").observed for lane in ("L3", "L5"))
    assert in_l3["method"] == "draft_model" and in_l3["declared"]
    # Its own draft, in another batch: a near tie may cost it a token.
    assert in_l3["stale"]["rate"] < 0.5 < 0.9 < in_l3["arrivals"][0]["found"]["rate"]
    assert [one["state"] for one in in_l5["arrivals"]] == ["evaluation-identity", "evaluation-post"]
    assert all(one["found"] == one["expected"] for one in [*in_l3["arrivals"], *in_l5["arrivals"]])


def test_the_label_stays_that_of_the_model(drafted: Drafted) -> None:
    assert drafted.check("L3", "transition.label").warnings == ()


def test_a_target_that_is_right_with_a_stale_draft_is_not_pass(
    drafted: Drafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case K31: the publisher sends A's draft again where B's is due."""
    session = drafted.session

    def stale(session: Session, push: Push) -> list[Sent]:
        return push_draft(session, Push("model", purpose=push.purpose))

    monkeypatch.setattr(transition, "push_draft", stale)
    lane = transition.run_transition(session, obtain(session))
    checks = {check.id: check for check in lane.checks}
    assert checks["transition.to_b"].outcome is Outcome.PASS
    assert checks["draft.acceptance"].outcome is Outcome.FAIL
    assert "the draft is stale" in checks["draft.acceptance"].reason
    assert lane.word == "FAIL_CLOSED"
