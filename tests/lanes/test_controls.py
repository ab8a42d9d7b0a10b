from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oracle.answers import record, shifted

from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.checkpoint.tiny import make_tiny_pair
from vst.lanes import controls
from vst.lanes.session import Session
from vst.oracle.record import Answer, Record
from vst.verdict import Outcome


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    pair = make_tiny_pair(tmp_path_factory.mktemp("tiny"))
    return {
        role: with_digests(read_manifest(path), None) for role, path in zip(("model", "checkpoint"), pair, strict=True)
    }


def session(manifests: dict[str, Manifest], **lane: Any) -> Session:
    """A session with its checkpoints and lane options; nothing of it can push."""
    conf: Any = SimpleNamespace(lane=SimpleNamespace(**{"controls": "all", "unobservable": [], **lane}))
    run: Any = SimpleNamespace(path=Path())
    progress: Any = None
    return Session(conf, run, progress, manifests=manifests, floor=0.0)


FAMILIES = ["attention_in", "attention_out", "embedding", "head", "mlp_in", "mlp_out", "norm"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("all", FAMILIES), ("none", []), ("head", ["head"]), ("norm, head", ["head", "norm"]), ("head,router", ["head"])],
)
def test_the_families_that_are_asked_for_are_those_that_the_checkpoint_has(
    manifests: dict[str, Manifest], chosen: str, expected: list[str]
) -> None:
    assert controls.wanted(session(manifests, controls=chosen)) == expected


def test_every_tensor_is_in_one_family_and_the_share_of_all_is_whole(manifests: dict[str, Manifest]) -> None:
    one = session(manifests)
    names = [entry.name for entries in controls.groups(one).values() for entry in entries]
    assert sorted(names) == [entry.name for entry in manifests["checkpoint"].tensors]
    found = controls.share(one, names)
    assert (found["tensor_share"], found["byte_share"]) == (1.0, 1.0)


def test_the_share_counts_tensors_and_bytes_of_what_was_noticed(manifests: dict[str, Manifest]) -> None:
    one = session(manifests)
    head = manifests["checkpoint"].by_name["lm_head.weight"]
    found = controls.share(one, ["lm_head.weight", "lm_head.weight"])
    assert found["tensors"] == f"1 of {len(manifests['checkpoint'].tensors)}"
    assert found["bytes"] == f"{head.nbytes} of {manifests['checkpoint'].total_bytes}"
    assert 0 < found["byte_share"] < 1
    assert controls.share(one, [])["tensor_share"] == 0


def test_only_tensors_whose_bytes_differ_can_tell(manifests: dict[str, Manifest]) -> None:
    model = manifests["model"]
    same = tuple(
        replace(entry, digest=model.by_name[entry.name].digest) if entry.name == "lm_head.weight" else entry
        for entry in manifests["checkpoint"].tensors
    )
    one = session({**manifests, "checkpoint": replace(manifests["checkpoint"], tensors=same)})
    assert controls.changed(one, controls.groups(one)["head"]) == ()
    assert len(controls.changed(one, controls.groups(one)["norm"])) == 7


def test_a_family_without_a_difference_is_unobservable_and_makes_the_lane_inconclusive(
    manifests: dict[str, Manifest],
) -> None:
    one = session({"model": manifests["checkpoint"], "checkpoint": manifests["checkpoint"]}, controls="head")
    check, *others = controls.run_controls(one, record(), [])
    assert all(other.outcome is Outcome.NOT_APPLICABLE and "lane.controls" in other.reason for other in others)
    assert check.id == "control.head" and others
    assert (check.id, check.outcome) == ("control.head", Outcome.INCONCLUSIVE)
    assert "the same bytes" in check.reason
    assert one.covered is not None and one.covered["tensor_share"] == 0


def test_a_family_that_was_declared_unobservable_is_not_applicable(manifests: dict[str, Manifest]) -> None:
    same = {"model": manifests["checkpoint"], "checkpoint": manifests["checkpoint"]}
    check, *others = controls.run_controls(session(same, controls="head", unobservable=["head"]), record(), [])
    assert all(other.outcome is Outcome.NOT_APPLICABLE and "lane.controls" in other.reason for other in others)
    assert check.id == "control.head" and others
    assert check.outcome is Outcome.NOT_APPLICABLE and "declared by lane.unobservable" in check.reason


@pytest.mark.parametrize("chosen", ["atention_in", "head , rooter", "heads,head"])
def test_a_family_that_the_checkpoint_does_not_have_is_not_silently_left_out(
    manifests: dict[str, Manifest], chosen: str
) -> None:
    same = {"model": manifests["checkpoint"], "checkpoint": manifests["checkpoint"]}
    found = controls.run_controls(session(same, controls=chosen, unobservable=["head"]), record(), [])
    bad = [check for check in found if check.outcome is Outcome.INCONCLUSIVE]
    assert len(bad) == 1 and "no tensor of B belongs" in bad[0].reason


def test_a_control_is_noticed_when_the_answers_are_not_those_of_b(manifests: dict[str, Manifest]) -> None:
    """K42."""
    b, one = record(), session(manifests)
    noticed = controls.control_check(one, "head", ("lm_head.weight",), shifted(b, 0.5), b)
    assert noticed.outcome is Outcome.PASS and noticed.observed["noticed"] is True
    missed = controls.control_check(one, "head", ("lm_head.weight",), b, b)
    assert missed.outcome is Outcome.INCONCLUSIVE and "answered as if B were whole" in missed.reason


def test_a_control_that_broke_the_server_proves_nothing_about_the_probes(manifests: dict[str, Manifest]) -> None:
    b, one = record(), session(manifests)
    broken = Record(b.claim, b.probes, tuple(Answer.unwritten(answer.prompt) for answer in b.answers))
    for seen in (broken, shifted(b, float("nan"))):
        check = controls.control_check(one, "head", ("lm_head.weight",), seen, b)
        assert check.outcome is Outcome.INCONCLUSIVE and check.observed["noticed"] is False
        assert "computed no numbers" in check.reason


def test_controls_that_were_not_run_are_declared_away_or_inconclusive(manifests: dict[str, Manifest]) -> None:
    outcomes = {
        (chosen, good): controls.not_run(session(manifests, controls=chosen), good)[0].outcome
        for chosen in ("none", "all")
        for good in (True, False)
    }
    assert outcomes.pop(("none", True)) is Outcome.NOT_APPLICABLE
    assert set(outcomes.values()) == {Outcome.INCONCLUSIVE}
