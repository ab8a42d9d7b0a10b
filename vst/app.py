"""From a composed configuration to a verdict on disk and an exit code; importable, so that a cluster can pickle it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from vst import config, exit_codes
from vst.attempt import attempt_number
from vst.confdir import conf_dir
from vst.config import VstConf
from vst.errors import ConfigError, TransportError, VstError
from vst.harmless import visible
from vst.lifeline import end_at_once
from vst.opening import look_around, open_run
from vst.provenance.atomic import StorageFailure
from vst.provenance.redaction import Scrubber
from vst.provenance.rundir import Draw, RunDir
from vst.spelling import misspelt
from vst.stopping import Interrupted, Stopping
from vst.verdict import (
    EXIT_CODES,
    EXIT_CONFIG,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    Check,
    LaneVerdict,
    Outcome,
    Verdict,
    worst,
)

if TYPE_CHECKING:
    from vst.console import Shown
    from vst.lanes.session import Session

VERDICT_FORMAT = "vst-verdict/1"
DRAW_LIMIT_S = 20.0


def task(cfg: DictConfig, last: bool = False) -> int:
    """One run, perhaps the ``last`` of its process: its exit code, after the verdict was written.

    A wrong configuration writes nothing.
    """
    try:
        conf = config.load(cfg)
        _lane(conf.lane.name)  # takes time to import: not between the run directory and the handlers of signals
        run = open_run(cfg, conf)
    except ConfigError as error:
        print(f"vst: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG
    except StorageFailure as error:
        print(f"vst: {visible(error)}; free space and start again", file=sys.stderr)
        return EXIT_CODES[Outcome.ERROR]
    except OSError as error:
        print(f"vst: the run directory cannot be used: {visible(error)}", file=sys.stderr)
        return EXIT_CONFIG
    return execute(conf, run, last)


def execute(conf: VstConf, run: RunDir, last: bool = False) -> int:
    """Run the lane in a run directory that was opened; every end leaves a verdict there.

    ``last``: nothing but the end of the process follows, which a late signal must not give another exit code.
    """
    stopping = Stopping()
    from vst.console import make_console
    from vst.lanes.session import Session

    console = make_console(conf.console, run.event)
    console.say(f"lane {conf.lane.name}, run directory {run.path}")
    session = Session(conf, run, console)
    console.watch(lambda: session.fleet.state if session.fleet else "")
    verdict = Verdict(conf.lane.name)
    pinned: LaneVerdict | None = None
    ended: BaseException | None = None
    try:
        stopping.catch()
        pinned = look_around(run, conf.snapshot, conf.provenance)
        if pinned is None or pinned.passed:
            _lane(conf.lane.name)(session, verdict, console.lane)
        stopping.ending()
    except Interrupted as stop:
        stopping.ending()
        ended = stop
        with suppress(StorageFailure):
            run.event("interrupted", signal=str(stop))
        verdict.interrupted = stop.code
        _taint(session, f"interrupted by {stop}", stopping)
    except ConfigError as error:
        stopping.ending()
        ended = error
        verdict.interrupted = EXIT_CONFIG
        verdict.lanes.append(_unfinished(error, Outcome.REFUSED))
    except VstError as error:
        ended = error
        _taint(session, str(error), stopping)
        verdict.lanes.append(_unfinished(error, Outcome.ERROR if isinstance(error, TransportError) else Outcome.FAIL))
    except Exception as error:  # a fault of ours: the verdict says so, and the traceback is shown
        ended = error
        _taint(session, f"{type(error).__name__}: {error}", stopping)
        verdict.lanes.append(_unfinished(error, Outcome.ERROR))
        sys.excepthook(type(error), error, error.__traceback__)
    stopping.ending()
    if pinned is not None:
        verdict.lanes.insert(0, pinned)
    try:
        return _end(session, verdict, console, ended, stopping)
    except StorageFailure as error:
        console.close()
        print(f"vst: {run.scrubber.text(str(error))}; free space and start again: no verdict was written, what is "
              "there says in_progress", file=sys.stderr)  # fmt: skip
        return EXIT_CODES[Outcome.ERROR]
    finally:
        stopping.ignore() if last else stopping.restore()


def _lane(name: str) -> Callable[[Session, Verdict, Callable[[LaneVerdict], None]], None]:
    from vst.lanes import evaluate, ladder, operate, publish, records, selftest
    from vst.lanes.diagnose import lane as diagnosis

    operations = {
        "publish": publish.publish,
        "lifecycle": operate.operate,
        "record": records.record,
        "compare": records.compare,
        "eval": evaluate.evaluate_model,
        "diagnose": diagnosis.diagnose,
        "selftest": selftest.selftest,
    }
    return operations.get(name, ladder.climb)


def _unfinished(error: BaseException, outcome: Outcome) -> LaneVerdict:
    reason = f"{type(error).__name__}: {error}"
    return LaneVerdict("run", (Check("run.completed", outcome, expected="the run ends by itself", reason=reason),))


def _taint(session: Session, reason: str, stopping: Stopping) -> None:
    """An end in the middle leaves a server that is not proven; one that was not touched keeps its state."""
    stopping.ending()
    fleet = session.fleet
    if fleet is None or not session.transactions or (fleet.verified and fleet.state == "serving"):
        return

    def give_up() -> None:
        for replica in fleet.replicas:
            replica.lifecycle.left = "not known to be paused: a signal asked for the end at once"

    stopping.orderly(lambda: fleet.taint(reason), give_up)


def _close(session: Session, server: dict[str, Any], stopping: Stopping) -> None:
    """End what was started; a second signal kills it instead of waiting for it."""
    from vst.lanes.servers import close

    def work() -> None:
        with suppress(StorageFailure):
            close(session)

    def kill() -> None:
        end_at_once()
        for one in (server, *server.get("servers", ())):
            if one["left"] == "stopped":
                one["left"] = "killed: a signal asked for the end at once"

    stopping.orderly(work, kill)


def _draw(run: RunDir, console: Shown) -> Draw:
    """The pages of the run. What cannot be drawn costs a page, never the verdict, and can be drawn again later."""

    def draw(path: Path) -> Mapping[str, bytes]:
        try:
            from vst.report.files import draw_files
            from vst.report.limited import time_limit

            with time_limit(DRAW_LIMIT_S):
                return draw_files(path)
        except Exception as error:
            story = f"report.html was not drawn: {type(error).__name__}: {error}"
            run.event("page_failed", error=story)
            console.say(f"{story}; the verdict stands, draw it with: python -m vst.report {path}")
            return {}

    return draw


def _end(session: Session, verdict: Verdict, console: Shown, ended: BaseException | None, stopping: Stopping) -> int:
    from vst.lanes.state_at_end import state_at_end

    server = state_at_end(session)
    _close(session, server, stopping)
    stopping.ignore()
    if session.run.failure is not None and not isinstance(ended, StorageFailure):
        ended = StorageFailure(session.run.failure)
        verdict.lanes.append(_unfinished(ended, Outcome.ERROR))
    verdict.lanes = [_masked(lane, session.run.scrubber) for lane in verdict.lanes]
    verdict.server_state = server["state"]
    verdict.covered = session.covered
    content = {
        "format": VERDICT_FORMAT,
        "lane": verdict.lane,
        "verdict": verdict.word,
        "cause": verdict.cause.value if verdict.cause else None,
        "interrupted": verdict.interrupted in (EXIT_INTERRUPTED, EXIT_TERMINATED),
        "exit_code": verdict.exit_code,
        "noise_floor": session.floor,
        "covered": verdict.covered,
        "server": server,
        "lanes": [lane.to_json() for lane in verdict.lanes],
    }
    outcome = {
        "exit_code": verdict.exit_code,
        "verdict": verdict.word,
        "server": server,
        "attempt": attempt_number(session.run.path),
        "error": {"class": type(ended).__name__, "text": str(ended)} if ended is not None else None,
    }
    session.run.finish(content, outcome, _draw(session.run, console))
    console.end(verdict, server, str(session.run.path))
    return verdict.exit_code


def _masked(lane: LaneVerdict, scrubber: Scrubber) -> LaneVerdict:
    """The lane as it may be shown and written: an address in a reason may hold a password."""
    checks = (
        replace(
            check,
            observed=scrubber.tree(check.observed),
            expected=scrubber.tree(check.expected),
            reason=scrubber.foreign(check.reason),
            warnings=tuple(map(scrubber.foreign, check.warnings)),
        )
        for check in lane.checks
    )
    return LaneVerdict(lane.lane, tuple(checks))


def main() -> int:
    """The command line: Hydra composes, ``task`` or a launcher runs, the worst exit code of all runs is returned."""
    from vst.cluster.shape import mode_of, unknown_overrides

    config.register()
    exit_codes.forget()
    if unknown := [*misspelt(sys.argv[1:], conf_dir()), *unknown_overrides(sys.argv[1:])]:
        print("\n".join(f"vst: {visible(message)}" for message in unknown), file=sys.stderr)
        return EXIT_CONFIG

    def remember(cfg: DictConfig) -> int:
        code = task(cfg, last=HydraConfig.get().mode is RunMode.RUN)
        exit_codes.note([code])
        return code

    OmegaConf.register_new_resolver("pid", os.getpid, replace=True)
    OmegaConf.register_new_resolver("mode_of", mode_of, replace=True)
    decorated = hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(remember)
    try:
        decorated()
    except SystemExit as stop:
        # Hydra ends with 1 when it cannot compose; with 0 after --help and its kin.
        return EXIT_CONFIG if stop.code and not exit_codes.noted() else int(stop.code or 0)
    return worst(exit_codes.noted())
