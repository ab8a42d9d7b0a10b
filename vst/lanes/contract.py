"""Lane L1, the judging half: what a server says of itself against what the run needs. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.oracle.compare import Difference
from vst.oracle.record import Record
from vst.selftest.double import SAYS, is_double, version_of
from vst.server.facts import ROUTES, ServerFacts
from vst.transfer.adapter import SUPPORTED, dialect
from vst.verdict import Check, Outcome

IDS = (
    "server.reachable",
    "server.dialect",
    "server.routes",
    "server.model",
    "server.transfer",
    "server.world",
    "server.state",
    "server.devices",
    "server.alive",
    "oracle.repeatable",
    "oracle.finite",
)


@dataclass(frozen=True)
class Expected:
    """What the configuration declares about the server, and what the publisher is."""

    model: str
    root: Path
    backend: str
    world_size: int
    publisher_vllm: str
    publisher_device: str
    server_devices: tuple[str, ...]
    local: bool
    scripted: bool = False


def _check(id: str, holds: bool, observed: Any, expected: Any, reason: str, warnings: Sequence[str] = ()) -> Check:
    outcome = Outcome.PASS if holds else Outcome.REFUSED
    return Check(id, outcome, observed, expected, reason="" if holds else reason, warnings=tuple(warnings))


def contract_checks(facts: ServerFacts, expected: Expected) -> list[Check]:
    """The checks of L1 that need no generation, each refused when it does not hold."""
    return [
        Check("server.reachable", Outcome.PASS, observed=facts.version, expected="an answer"),
        _dialect(facts, expected),
        _routes(facts),
        _model(facts, expected),
        _transfer(facts, expected),
        _world(facts, expected),
        _state(facts),
        devices_check(expected),
    ]


def _dialect(facts: ServerFacts, expected: Expected) -> Check:
    if is_double(facts.version) or expected.scripted:
        return _double(facts.version, expected)
    try:
        dialect(facts.version)
    except VerificationError as error:
        return _check("server.dialect", False, facts.version, SUPPORTED, str(error))
    same = facts.version == expected.publisher_vllm
    reason = (
        f"the server runs vLLM {facts.version}, the publisher has {expected.publisher_vllm}: install the server's here"
    )
    return _check("server.dialect", same, facts.version, expected.publisher_vllm, reason)


def _double(version: str, expected: Expected) -> Check:
    """A scripted server is accepted only where it was asked for, and never without saying what it is."""
    wanted = version_of(expected.publisher_vllm) if expected.scripted else expected.publisher_vllm
    reason = (
        f"the server says {version}, expected {wanted}: a scripted double is accepted with server=scripted or "
        "server.scripted=true only, and a vLLM only without them"
    )
    return _check("server.dialect", version == wanted, version, wanted, reason, [SAYS] if is_double(version) else [])


def _routes(facts: ServerFacts) -> Check:
    missing = [route for route in ROUTES if route not in facts.routes]
    reason = f"routes missing: {', '.join(missing)}; start the server with VLLM_SERVER_DEV_MODE=1"
    return _check("server.routes", not missing, list(facts.routes), list(ROUTES), reason)


def _model(facts: ServerFacts, expected: Expected) -> Check:
    served = [str(model.get("id")) for model in facts.models]
    root = next((str(model.get("root")) for model in facts.models if model.get("id") == expected.model), None)
    reason = f"the server serves {served}, expected {expected.model}; set server.served_model_name"
    warnings = []
    if root is not None and Path(root) != expected.root:
        warnings.append(
            f"the server names its model {root}, model.path is {expected.root}: equality is proven by records only"
        )
    return _check("server.model", root is not None, {"served": served, "root": root}, expected.model, reason, warnings)


def _transfer(facts: ServerFacts, expected: Expected) -> Check:
    found = facts.transfer_backend
    wanted = f"""--weight-transfer-config '{{"backend": "{expected.backend}"}}'"""
    reason = f"the server's weight-transfer backend is {found}, expected {expected.backend}: start it with {wanted}"
    return _check("server.transfer", found == expected.backend, found, expected.backend, reason)


def _world(facts: ServerFacts, expected: Expected) -> Check:
    reason = (
        f"the server says world size {facts.world_size}, declared are {expected.world_size} = TP x PP x DP: "
        "set server.tensor_parallel_size, pipeline_parallel_size and data_parallel_size to the server's"
    )
    return _check(
        "server.world", facts.world_size == expected.world_size, facts.world_size, expected.world_size, reason
    )


def _state(facts: ServerFacts) -> Check:
    observed = {"paused": facts.paused, "sleeping": facts.sleeping}
    awake = facts.paused is False and facts.sleeping is False
    reason = (
        f"the server is not serving ({observed}): wake and resume it first, or restart it if an update failed on it"
    )
    return _check("server.state", awake, observed, {"paused": False, "sleeping": False}, reason)


def devices_check(expected: Expected) -> Check:
    """``server.devices``: a publisher on a GPU must have one that the server does not use."""
    device, used = expected.publisher_device, list(expected.server_devices)
    observed = {"publisher": device, "server": used}
    if device == "cpu" or not expected.local:
        return Check("server.devices", Outcome.PASS, observed, "no GPU in common")
    index = device.partition(":")[2] or "0"
    if not used:
        reason = "which GPUs the server uses is not declared: set server.devices"
        return Check("server.devices", Outcome.REFUSED, observed, "no GPU in common", reason=reason)
    return _check("server.devices", index not in used, observed, "no GPU in common", f"{device} is one of the server's")


def repeatable_check(found: Difference) -> Check:
    """``oracle.repeatable``: an unchanged state answers alike; the spread is the noise floor of everything that
    follows.
    """
    observed = {key: found.to_json()[key] for key in ("largest_difference", "token_changes")}
    if found.non_finite:
        reason = "the records are not finite, so no noise floor could be measured"
        return Check("oracle.repeatable", Outcome.INCONCLUSIVE, observed, "finite records", reason=reason)
    if found.token_changes:
        reason = f"the same state gave other tokens on a repeat, first at {found.first}: no comparison can be judged"
        return Check("oracle.repeatable", Outcome.INCONCLUSIVE, observed, "the same record twice", reason=reason)
    return Check("oracle.repeatable", Outcome.PASS, observed, "the same record twice; the spread is the noise floor")


def finite_check(records: Sequence[Record]) -> Check:
    bad = [(number, probe) for number, r in enumerate(records) for probe, a in enumerate(r.answers) if not a.finite()]
    if bad:
        reason = f"record {bad[0][0]}, probe {bad[0][1]} has a log-probability that is not finite"
        return Check("oracle.finite", Outcome.FAIL, len(bad), 0, reason=reason)
    return Check("oracle.finite", Outcome.PASS, 0, 0)


def not_evaluated(done: Sequence[Check], ids: Sequence[str] = IDS) -> list[Check]:
    """Refusals for the checks of L1 that were not reached, naming the first that did not hold."""
    have = {check.id for check in done}
    blocker = next((check for check in done if check.outcome is not Outcome.PASS), None)
    outcome = Outcome.ERROR if blocker is not None and blocker.outcome is Outcome.ERROR else Outcome.REFUSED
    name = blocker.id if blocker else "an earlier check"
    return [Check(id, outcome, reason=f"not evaluated: {name} did not hold") for id in ids if id not in have]
