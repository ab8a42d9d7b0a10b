"""Lane L5 against a scripted server: what is asked in which state, and what becomes of noise, failures and lies.

The server, the questions and the judging are real; only the transactions are replaced by a change of what it answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from evals.completions import Completions
from hydra import compose, initialize_config_dir

from vst import config
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.tiny import make_tiny_pair
from vst.confdir import conf_dir
from vst.evals.store import Evaluation
from vst.lanes import quality
from vst.lanes.evaluation import make_plan, server_identity, take_evaluation
from vst.lanes.fleet import Fleet, Replica
from vst.lanes.session import Server, Session
from vst.lanes.transaction import Push, TransactionFailed
from vst.provenance.rundir import RunDir
from vst.provenance.schema import validate_run
from vst.provenance.sidecar import Request
from vst.server.client import ControlPlane
from vst.server.facts import Instance, ServerFacts
from vst.transfer.plan import Sent
from vst.verdict import Check, LaneVerdict, Outcome

COUNT = 24
SENT = Sent(3, 100, "sha256:1", "blake3:2", 0.1)


class Silent:
    def say(self, text: str) -> None:
        """Nobody looks."""

    def bytes(self, what: str, done: int, total: int) -> None:
        """Nobody looks."""


@dataclass
class Lifecycle:
    """The state of the scripted server as the lane moves it."""

    holds: str = "checkpoint"
    verified: bool = False
    moves: list[str] = field(default_factory=list)

    def pause(self, mode: str) -> None:
        self.moves.append("pause")

    def reset_caches(self) -> None:
        self.moves.append("reset")

    def resume(self) -> None:
        self.moves.append("resume")

    def verify(self) -> None:
        self.verified = True


@dataclass
class Scripted:
    """A server whose answers follow from the prompt and from ``state``; ``odd`` may answer in another way."""

    server: Completions
    session: Session
    lifecycle: Lifecycle
    state: str = "B"
    odd: Callable[[str, str], str] = lambda prompt, text: text

    def answer(self, prompt: str, text: str) -> str:
        digest = hashlib.sha256(f"{self.state} {prompt}".encode()).hexdigest()
        return self.odd(prompt, f" {digest[:6]}\n#### {int(digest[:2], 16)}")

    def push(self, session: Session, push: Push, how: object = None) -> list[Sent]:
        self.state = "A" if push.role == "model" else "B"
        self.lifecycle.holds = push.role
        return [SENT]

    def cold(self) -> Evaluation:
        """What a cold server on B answers."""
        plan, self.state = make_plan(self.session), "B"
        identity = server_identity(self.session, "checkpoint", self.session.need("facts"))
        return take_evaluation(self.session, self.session.need("server"), plan, "B", "reference", identity)

    def run(self) -> LaneVerdict:
        return quality.run_quality(self.session, make_plan(self.session))


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    a, b = make_tiny_pair(tmp_path_factory.mktemp("pair"))
    return {"model": with_digests(read_manifest(a), None), "checkpoint": with_digests(read_manifest(b), None)}


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> config.VstConf:
    config.register()
    overrides = ["lane=L5", "eval.concurrency=4", f"eval.limit={COUNT}", f"paths.cache={tmp_path_factory.mktemp('c')}"]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return config.load(compose("config", overrides))


@pytest.fixture
def scripted(
    conf: config.VstConf, manifests: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scripted]:
    session = Session(conf, RunDir(tmp_path / "run", Request(("test",), (), "sha256:" + "0" * 64)), Silent())
    session.manifests.update(manifests)
    facts = ServerFacts("0.32.0", (), (), 1, False, False, "v", Instance("1", "x"))
    session.floor = 0.0
    with Completions() as server:
        control = ControlPlane(server.url)
        monkeypatch.setattr(control, "get", lambda path, *rest, **more: "no counters here")
        session.servers = session.seats = (Server(control, "tiny"),)
        lifecycle: Any = Lifecycle()
        session.fleet = Fleet((Replica(session.servers[0], facts, lifecycle),))
        found = Scripted(server, session, lifecycle)
        server.change = found.answer
        monkeypatch.setattr(quality, "push_with_draft", found.push)
        monkeypatch.setattr(quality, "same_check", lambda session: Check("server.same", Outcome.PASS))
        session.cold_evaluation = found.cold()
        yield found


def outcomes(lane: LaneVerdict) -> dict[str, str]:
    return {check.id: check.outcome.value for check in lane.checks}


def reason(lane: LaneVerdict, id: str) -> str:
    return next(check.reason for check in lane.checks if check.id == id)


def test_an_honest_server_passes_and_ends_on_b(scripted: Scripted) -> None:
    lane = scripted.run()
    assert lane.passed, lane.failing()
    assert (scripted.lifecycle.holds, scripted.lifecycle.verified) == ("checkpoint", True)
    files = {path.name for path in scripted.session.run.path.glob("evaluation-*.jsonl")}
    assert files == {f"evaluation-{name}.jsonl" for name in ("reference", "pre", "repeat", "identity", "post")}
    wrong = validate_run(scripted.session.run.path)
    assert [line for line in wrong if "/source" not in line and "/machine" not in line] == []


def test_the_caches_are_emptied_before_what_was_asked_before_is_asked_again(scripted: Scripted) -> None:
    scripted.run()
    assert scripted.lifecycle.moves == ["pause", "reset", "resume"]


def test_every_question_is_asked_once_in_each_state(scripted: Scripted) -> None:
    scripted.run()
    assert len(scripted.server.seen) == 5 * COUNT
    assert all(scripted.server.prompts.count(prompt) == 5 for prompt in set(scripted.server.prompts))


def test_a_push_that_has_no_effect_fails(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "push_with_draft", lambda session, push: [SENT])
    scripted.state = "A"
    lane = scripted.run()
    assert outcomes(lane)["eval.reference"] == "fail" and outcomes(lane)["eval.records"] == "pass"
    assert f"{COUNT} of {COUNT} records differ" in reason(lane, "eval.reference")
    assert not scripted.lifecycle.verified


def test_a_server_that_holds_b_all_the_time_is_not_taken_for_one_that_changes(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "push_with_draft", lambda session, push: [SENT])
    lane = scripted.run()
    assert not lane.passed and outcomes(lane)["eval.distinct"] == "inconclusive"


def test_one_answer_that_moves_under_identity_fails_and_is_listed(scripted: Scripted) -> None:
    prompt = str(make_plan(scripted.session).prompts[17].content)
    honest = scripted.push

    def push(session: Session, push: Push, how: object = None) -> list[Sent]:
        if push.purpose == "quality.identity":
            scripted.odd = lambda asked, text: text + "!" if asked == prompt else text
        return honest(session, push)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "push_with_draft", push)
        lane = scripted.run()
    assert outcomes(lane)["eval.records"] == "fail"
    flips = json.loads((scripted.session.run / "comparison-records.json").read_text())["differing"]
    assert [flip["index"] for flip in flips] == [17]
    assert flips[0]["right"]["text"] == flips[0]["left"]["text"] + "!"


def test_noise_is_measured_and_then_a_small_sample_decides_nothing(scripted: Scripted) -> None:
    scripted.odd = lambda asked, text: text + "." * (len(scripted.server.seen) % 7)
    lane = scripted.run()
    found = outcomes(lane)
    assert lane.cause is Outcome.INCONCLUSIVE
    assert (found["eval.records"], found["eval.paired"]) == ("inconclusive", "inconclusive")
    assert "too wide for the margin" in reason(lane, "eval.paired")


def test_noise_does_not_hide_a_change_of_correctness(scripted: Scripted) -> None:
    """The cold B is right where the server under test is wrong, and texts wobble anyway."""
    plan = make_plan(scripted.session)
    values = {str(prompt.content): q.value for prompt, q in zip(plan.prompts, plan.questions, strict=True)}
    scripted.odd = lambda asked, text: f"#### {values[asked]}" if scripted.state == "B" else text
    scripted.session.cold_evaluation = None
    (scripted.session.run / "evaluation-reference.jsonl").unlink()
    scripted.session.cold_evaluation = scripted.cold()
    scripted.odd = lambda asked, text: text + "." * (len(scripted.server.seen) % 7)
    lane = scripted.run()
    assert outcomes(lane)["eval.reference"] == "fail" and "McNemar" in reason(lane, "eval.reference")


def test_a_request_that_fails_fails_the_lane_and_is_told(scripted: Scripted) -> None:
    scripted.server.script = lambda body, number: (400, b"no") if number == COUNT * 4 else None
    lane = scripted.run()
    assert outcomes(lane)["eval.complete"] == "fail" and "answered 400: no" in reason(lane, "eval.complete")
    assert not lane.passed


def test_a_transaction_that_fails_leaves_what_follows_undecided(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(session: Session, push: Push, how: object = None) -> list[Sent]:
        if push.role == "checkpoint":
            raise TransactionFailed("phase broadcast: 500", Outcome.FAIL, "weight-update-2.json")
        return scripted.push(session, push)

    monkeypatch.setattr(quality, "push_with_draft", broken)
    lane = scripted.run()
    found = outcomes(lane)
    assert (found["transfer.completed"], found["eval.records"]) == ("fail", "pass")
    assert (found["eval.reference"], found["eval.complete"]) == ("inconclusive", "inconclusive")


def test_a_lane_that_has_no_cold_evaluation_does_not_pass(scripted: Scripted) -> None:
    scripted.session.cold_evaluation = None
    lane = scripted.run()
    assert lane.cause is Outcome.INCONCLUSIVE
    assert outcomes(lane)["eval.reference"] == outcomes(lane)["eval.distinct"] == "inconclusive"
