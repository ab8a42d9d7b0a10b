"""The predicate of all sidecars of a run, put together from what the run knows at this moment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vst.provenance.block import Block
from vst.provenance.evidence import Evidence
from vst.provenance.inputs import inputs_block
from vst.provenance.redaction import Scrubber
from vst.provenance.runtime import runtime_facts
from vst.provenance.sidecar import Request

IN_PROGRESS = "in_progress"
BLOCKS = (
    "verdict", "request", "defaults", "inputs", "source", "runtime", "machine", "lifecycle", "chain", "outcome",
)  # fmt: skip
NOT_YET = "not looked at before the run ended"


def verdict_block(verdict: Mapping[str, Any] | None) -> dict[str, Any]:
    """The short form of a verdict: the word, the cause, each check's outcome by lane; in progress when None."""
    if verdict is None:
        return Block().put("verdict", IN_PROGRESS).to_json()
    block = Block().put("verdict", verdict["verdict"]).put("lane", verdict["lane"])
    block.put("cause", verdict["cause"], "the run passed, or it was interrupted" if verdict["lanes"] else "no lane ran")
    block.put("server_state", verdict["server"]["state"])
    checks = {lane["lane"]: {check["id"]: check["outcome"] for check in lane["checks"]} for lane in verdict["lanes"]}
    return block.put("checks", checks).to_json()


def predicate(
    evidence: Evidence,
    request: Request,
    scrubber: Scrubber,
    verdict: Mapping[str, Any] | None,
    outcome: Mapping[str, Any],
    lifecycle_file: Mapping[str, str] | None,
) -> dict[str, Any]:
    """All blocks; everything that is not known is null, with a reason beside it."""
    machine = evidence.machine or {}
    image = (evidence.snapshot or {}).get("image")
    block = Block()
    block.put("verdict", verdict_block(verdict))
    block.put("request", request.to_json())
    block.put("defaults", list(evidence.defaults))
    block.put("inputs", inputs_block(evidence.inputs))
    block.put("source", _source(evidence), NOT_YET)
    block.put(
        "runtime",
        runtime_facts(os.environ, scrubber, evidence.libraries, evidence.servers, image, machine.get("gpus")),
    )
    block.put("machine", evidence.machine, NOT_YET)
    block.put("lifecycle", evidence.timeline.block(lifecycle_file))
    block.put("chain", _chain(evidence))
    return scrubber.tree(block.put("outcome", _outcome(outcome)).to_json())  # type: ignore[no-any-return]


def _source(evidence: Evidence) -> dict[str, Any] | None:
    if evidence.source is None:
        return None
    reasons = {**evidence.source["unknown"]}
    if evidence.snapshot is None:
        reasons["snapshot"] = "no snapshot was given (snapshot.manifest)"
    return {**evidence.source, "snapshot": evidence.snapshot, "unknown": reasons}


def _chain(evidence: Evidence) -> dict[str, Any]:
    block = Block()
    block.put("reference", evidence.reference, "no reference of B was used")
    manifest = {key: evidence.snapshot[key] for key in ("manifest", "sha256")} if evidence.snapshot else None
    block.put("snapshot", manifest, "no snapshot was given (snapshot.manifest)")
    return block.put("previous", evidence.previous, "no previous run was named (provenance.previous)").to_json()


def _outcome(outcome: Mapping[str, Any]) -> dict[str, Any]:
    block = Block().put("exit_code", outcome.get("exit_code"), "the run is still going on, or was killed")
    block.put("error", outcome.get("error"), "no error ended the run, or it is still going on")
    return block.put("attempt", outcome.get("attempt"), "the run is still going on").to_json()
