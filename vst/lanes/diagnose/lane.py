"""Lane ``diagnose``: the files, the server, the reference of B; then the search, and its judgement."""

from __future__ import annotations

import tempfile
from pathlib import Path

from vst.errors import ConfigError, VstError
from vst.lanes.diagnose.bench import Bench
from vst.lanes.diagnose.found import FILE, Diagnosis
from vst.lanes.diagnose.judge import checks
from vst.lanes.diagnose.narrow import OutOfPushes
from vst.lanes.diagnose.search import search
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files, still_stable
from vst.lanes.fleet_opening import open_servers
from vst.lanes.ladder import Show, cold_answers, not_started
from vst.lanes.same_server import same_check
from vst.lanes.sending import start_publisher
from vst.lanes.servers import owned
from vst.lanes.session import Session
from vst.lanes.transaction import TransactionFailed, answers_check, completed_check
from vst.lanes.transition import comparable_check, distinct_check
from vst.oracle.reference import Reference
from vst.verdict import LaneVerdict, Outcome, Verdict


def diagnose(session: Session, verdict: Verdict, show: Show) -> None:
    """Find the smallest set of tensors whose update does not arrive, or that identity alone already breaks."""
    server = session.conf.server
    if not owned(session) or server.replicas > 1 or server.kind == "gpu":
        raise ConfigError(
            "lane=diagnose starts, restarts and compares servers of its own beside each other: set server=cpu and "
            "server.replicas=1"
        )
    files, before = run_files(session)
    verdict.lanes.append(files)
    show(files)
    if not files.passed:
        return
    try:
        start_publisher(session)
        session.reference = cold_answers(session)
        session.progress.say("starting the server on A")
        open_servers(session)
        verdict.lanes.append(run_contract(session))
    except VstError as error:
        verdict.lanes.append(not_started(error))
    show(verdict.lanes[-1])
    if verdict.lanes[-1].passed and session.reference is not None:
        verdict.lanes.append(_examine(session, session.reference))
        show(verdict.lanes[-1])
    verdict.lanes[0] = LaneVerdict("L0", (*files.checks, still_stable(before, session)))


def _examine(session: Session, reference: Reference) -> LaneVerdict:
    first = [comparable_check(session, reference)]
    if first[0].outcome is Outcome.PASS:
        first.append(distinct_check(session.records[0], reference.record, session.need("floor")))
    if any(check.outcome is not Outcome.PASS for check in first):
        return LaneVerdict("diagnose", tuple(first))
    found = Diagnosis(limit=int(session.conf.lane.pushes or 0))
    failure: TransactionFailed | None = None
    broken: VstError | None = None
    # Mixtures are as large as a checkpoint: they go where the user has room for such.
    cache = Path(session.conf.paths.cache).expanduser().absolute()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="mixtures-") as scratch:
        bench = Bench(session, reference.record, found, Path(scratch))
        try:
            search(session, bench, found)
        except TransactionFailed as error:
            failure, found.stopped = error, found.stopped or str(error)
        except OutOfPushes:
            found.stopped = f"stopped after lane.pushes={found.limit}"
        except VstError as error:
            broken, found.stopped = error, found.stopped or str(error)
    session.run.write(FILE, found.to_json())
    if found.mode is not None or failure is not None or broken is not None:
        session.need("fleet").taint("it was diagnosed: what it holds was changed piece by piece")
    judged = checks(found, session.floor)
    around = [completed_check(bench.sent, failure), answers_check(broken)]
    return LaneVerdict("diagnose", (*first, *around, *judged, same_check(session)))
