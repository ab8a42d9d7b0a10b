from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle.answers import answer, record

from vst.lanes.contract import (
    IDS,
    Expected,
    contract_checks,
    devices_check,
    finite_check,
    not_evaluated,
    repeatable_check,
)
from vst.lanes.publish import awake_check
from vst.oracle.compare import spread
from vst.server.facts import ROUTES, Instance, ServerFacts
from vst.verdict import Check, Outcome

FACTS = ServerFacts(
    version="0.32.0",
    models=({"id": "tiny", "root": "/ckpt/a"},),
    routes=ROUTES,
    world_size=2,
    paused=False,
    sleeping=False,
    weight_version="default",
    instance=Instance("1", "2"),
    config={"weight_transfer_config": {"backend": "vst_gloo"}},
)
EXPECTED = Expected(
    model="tiny",
    root=Path("/ckpt/a"),
    backend="vst_gloo",
    world_size=2,
    publisher_vllm="0.32.0",
    publisher_device="cpu",
    server_devices=(),
    local=True,
)


def checks(facts: ServerFacts = FACTS, expected: Expected = EXPECTED) -> dict[str, Check]:
    return {check.id: check for check in contract_checks(facts, expected)}


def test_a_server_as_declared_passes_every_check_that_needs_no_generation() -> None:
    found = checks()
    assert list(found) == list(IDS[:8])
    assert {check.outcome for check in found.values()} == {Outcome.PASS}


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "K39 another version": ({"version": "0.31.0"}, "server.dialect", "vLLM 0.31.0, the publisher has 0.32.0"),
    "K39 an unknown dialect": ({"version": "0.34.0"}, "server.dialect", "0.34.0 is not supported"),
    "K39 no version": ({"version": "None"}, "server.dialect", "None is not supported"),
    "K20 a smaller world": ({"world_size": 1}, "server.world", "world size 1, declared are 2"),
    "K20 no world": ({"world_size": None}, "server.world", "world size None"),
    "K21 asleep": ({"sleeping": True}, "server.state", "not serving"),
    "paused": ({"paused": True}, "server.state", "not serving"),
    "a state that it does not tell": ({"paused": None}, "server.state", "not serving"),
    "a sleep that it does not tell": ({"sleeping": None}, "server.state", "not serving"),
    "no development routes": ({"routes": ()}, "server.routes", "VLLM_SERVER_DEV_MODE=1"),
    "one route missing": ({"routes": ROUTES[1:]}, "server.routes", "routes missing: /pause;"),
    "no transfer backend": ({"config": {}}, "server.transfer", "backend is None, expected vst_gloo"),
    "another backend": ({"config": {"weight_transfer_config": {"backend": "nccl"}}}, "server.transfer", "is nccl"),
    "another model": ({"models": ({"id": "other"},)}, "server.model", "serves ['other'], expected tiny"),
    "no model": ({"models": ()}, "server.model", "serves []"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_server_that_is_not_the_declared_one_is_refused_in_one_check_with_the_reason(what: str) -> None:
    change, id, reason = REFUSED[what]
    found = checks(replace(FACTS, **change))
    assert [check.id for check in found.values() if check.outcome is not Outcome.PASS] == [id]
    assert found[id].outcome is Outcome.REFUSED and reason in found[id].reason


def test_another_root_is_a_warning_that_records_are_the_only_proof() -> None:
    found = checks(replace(FACTS, models=({"id": "tiny", "root": "/elsewhere"},)))["server.model"]
    assert found.outcome is Outcome.PASS and "equality is proven by records only" in found.warnings[0]


@pytest.mark.parametrize(
    ("device", "used", "local", "outcome"),
    [
        ("cpu", (), True, Outcome.PASS),
        ("cuda:1", ("0",), True, Outcome.PASS),
        ("cuda:0", ("0", "1"), True, Outcome.REFUSED),
        ("cuda", ("0",), True, Outcome.REFUSED),
        ("cuda:1", (), True, Outcome.REFUSED),
        ("cuda:0", ("0",), False, Outcome.PASS),
    ],
)
def test_the_publisher_may_not_sit_on_a_gpu_of_the_server(
    device: str, used: tuple[str, ...], local: bool, outcome: Outcome
) -> None:
    expected = replace(EXPECTED, publisher_device=device, server_devices=used, local=local)
    assert devices_check(expected).outcome is outcome


@pytest.mark.parametrize(
    ("sleeping", "outcome"), [(False, Outcome.PASS), (True, Outcome.REFUSED), (None, Outcome.REFUSED)]
)
def test_a_push_into_a_sleeping_server_is_refused(sleeping: bool | None, outcome: Outcome) -> None:
    """K21, for the lane that pushes and does nothing else."""
    assert awake_check(replace(FACTS, sleeping=sleeping)).outcome is outcome


BASE = record()
OTHER_TOKEN = record(answer(), answer(output=(7, 9), top=(((7, -0.5),), ((9, -0.1),))))
NOT_FINITE = record(answer(), answer(output_logprobs=(float("nan"), -0.25)))


def test_an_unchanged_state_that_answers_alike_gives_the_noise_floor() -> None:
    check = repeatable_check(spread([BASE, BASE]))
    assert check.outcome is Outcome.PASS and check.observed["largest_difference"] == 0.0


def test_an_unchanged_state_that_answers_otherwise_is_inconclusive() -> None:
    """K14."""
    check = repeatable_check(spread([BASE, OTHER_TOKEN]))
    assert check.outcome is Outcome.INCONCLUSIVE and "no comparison can be judged" in check.reason


@pytest.mark.parametrize("records", [[BASE, NOT_FINITE], [NOT_FINITE, BASE], [NOT_FINITE, NOT_FINITE]])
def test_records_that_are_not_finite_give_no_floor_and_fail(records: list[Any]) -> None:
    import json

    check = repeatable_check(spread(records))
    assert check.outcome is Outcome.INCONCLUSIVE
    json.dumps(check.to_json(), allow_nan=False)
    assert finite_check(records).outcome is Outcome.FAIL
    assert "log-probability that is not finite" in finite_check(records).reason


def test_finite_records_pass() -> None:
    assert finite_check([BASE, BASE]).outcome is Outcome.PASS


def test_what_was_not_reached_is_refused_and_names_what_did_not_hold() -> None:
    done = list(checks(replace(FACTS, world_size=1)).values())
    rest = not_evaluated(done)
    assert [check.id for check in (*done, *rest)] == list(IDS)
    assert {(check.outcome, check.reason) for check in rest} == {
        (Outcome.REFUSED, "not evaluated: server.world did not hold")
    }


def test_what_was_not_reached_because_something_broke_is_an_error() -> None:
    rest = not_evaluated([Check("server.reachable", Outcome.ERROR, reason="refused")])
    assert len(rest) == len(IDS) - 1 and {check.outcome for check in rest} == {Outcome.ERROR}


@pytest.mark.parametrize(
    ("version", "scripted", "outcome"),
    [
        ("0.32.0+vst.scripted", True, Outcome.PASS),
        ("0.32.0+vst.scripted", False, Outcome.REFUSED),
        ("0.31.0+vst.scripted", True, Outcome.REFUSED),
        ("0.32.0", True, Outcome.REFUSED),
    ],
)
def test_a_scripted_double_is_a_server_only_where_it_was_asked_for(
    version: str, scripted: bool, outcome: Outcome
) -> None:
    check = checks(replace(FACTS, version=version), replace(EXPECTED, scripted=scripted))["server.dialect"]
    assert check.outcome is outcome
    assert bool(check.warnings) is version.endswith("scripted")
