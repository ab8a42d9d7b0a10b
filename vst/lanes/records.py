"""Lanes ``record`` (take a reference of A) and ``compare`` (judge two stored records or evaluations offline)."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from vst.errors import VerificationError, VstError
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files, still_stable
from vst.lanes.fleet import over_all
from vst.lanes.fleet_opening import open_servers
from vst.lanes.ladder import Show, not_started
from vst.lanes.references import keep, make_key, moved
from vst.lanes.sending import start_publisher
from vst.lanes.servers import owned
from vst.lanes.session import Session
from vst.lanes.stored_evaluations import evaluations_check, is_evaluation
from vst.oracle.compare import difference
from vst.oracle.record import Record
from vst.server.facts import UNTOUCHED, ServerFacts
from vst.verdict import Check, LaneVerdict, Outcome, Verdict

COLD = "a server that loaded A when it started, and was not updated since"


def record(session: Session, verdict: Verdict, show: Show) -> None:
    """Audit A, start a server on it, take its records and keep the first as the reference of A (``reference.json``)."""
    files, before = run_files(session)
    verdict.lanes.append(files)
    show(files)
    if not files.passed:
        return
    try:
        start_publisher(session)
        open_servers(session)
    except VstError as error:
        verdict.lanes.append(not_started(error))
    else:
        verdict.lanes.append(run_contract(session))
    show(verdict.lanes[-1])
    if verdict.lanes[-1].passed:
        verdict.lanes.append(LaneVerdict("record", (cold_check(session),)))
        show(verdict.lanes[-1])
    if all(lane.passed for lane in verdict.lanes) and not moved(session, "model"):
        key = make_key(session, "model", session.need("publisher").wait_ready())
        kept = keep(session, "model", key, session.records[0], session.need("facts"), started=owned(session))
        session.run.write("reference.json", kept.to_json())
    verdict.lanes[0] = LaneVerdict("L0", (*files.checks, still_stable(before, session)))


def cold_check(session: Session) -> Check:
    """``reference.cold``: each server loaded A when it started and was not updated since, as far as it can be seen."""
    if owned(session):
        return Check("reference.cold", Outcome.PASS, "started by this run", COLD)
    root = session.manifests["model"].path
    replicas = session.need("fleet").replicas
    return over_all([(one.server.title, _cold(one.facts, one.server.name, root)) for one in replicas])


def _cold(facts: ServerFacts, name: str, root: Path) -> Check:
    label = facts.weight_version
    loaded = next((Path(str(model.get("root"))) for model in facts.models if model.get("id") == name), None)
    reason = ""
    if label != UNTOUCHED:
        reason = f"its weight version is {label}, and {UNTOUCHED} until an update: start the server anew"
    elif loaded is not None and os.path.exists(loaded) and not os.path.samefile(loaded, root):
        reason = f"it was started on {loaded}, and model.path is {root}: start it on what the reference is to be of"
    outcome = Outcome.REFUSED if reason else Outcome.PASS
    return Check("reference.cold", outcome, {"label": label, "root": str(loaded)}, COLD, reason=reason)


def compare(session: Session, verdict: Verdict, show: Show) -> None:
    """Judge ``lane.left`` against ``lane.right``: records by the noise floor stored with the left one, evaluations by
    their records or the paired test.
    """
    left, right = str(session.conf.lane.left), str(session.conf.lane.right)
    evaluations = any(map(is_evaluation, (left, right)))
    check = evaluations_check(session) if evaluations else _stored_records(left, right)
    verdict.lanes.append(LaneVerdict("compare", (check,)))
    show(verdict.lanes[0])


def _stored_records(left: str, right: str) -> Check:
    try:
        return compare_check(*read_record(left), read_record(right)[0], left)
    except VerificationError as error:
        return Check("compare.records", Outcome.REFUSED, left, right, reason=str(error))


def compare_check(observed: Record, floor: float | None, expected: Record, file: str) -> Check:
    """``compare.records``: the left record equals the right one within its measured noise floor."""
    if floor is None:
        reason = (
            f"{file} holds no noise floor: it was taken before the floor was measured; use a later record of its run"
        )
        return Check("compare.records", Outcome.INCONCLUSIVE, expected="a measured noise floor", reason=reason)
    apart = difference(observed, expected, floor)
    if apart.equal:
        return Check("compare.records", Outcome.PASS, apart.to_json(), "equal records", floor)
    reason = f"{apart.differing} of {apart.positions} positions differ, first {apart.first}"
    return Check("compare.records", Outcome.FAIL, apart.to_json(), "equal records", floor, reason)


def read_record(path: str) -> tuple[Record, float | None]:
    """A stored record and the noise floor stored with it; also the record inside a reference."""
    try:
        data = json.loads(Path(path).expanduser().absolute().read_text())
    except (OSError, ValueError) as error:
        raise VerificationError(f"{path} cannot be read as a record: {error}") from error
    if isinstance(data, dict) and isinstance(data.get("record"), dict):
        data = data["record"]
    if not isinstance(data, dict):
        raise VerificationError(f"{path} is not a record")
    return Record.from_json(data), _floor(data.get("noise_floor"))


def _floor(value: Any) -> float | None:
    """A noise floor is a finite number that is not negative; with any other everything would be equal, or nothing."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and value >= 0 else None
