"""From a composed configuration to a verdict on disk and an exit code; importable, so that a cluster can pickle it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import hydra
from omegaconf import DictConfig, OmegaConf

from vst import config, early_signals, exit_codes
from vst.attempt import attempt_number
from vst.confdir import conf_dir
from vst.config import VstConf
from vst.errors import ConfigError, TransportError, VstError
from vst.opening import look_around, open_run
from vst.provenance.atomic import StorageFailure
from vst.provenance.redaction import Scrubber
from vst.provenance.rundir import RunDir
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
    from vst.console import RunConsole
    from vst.lanes.session import Session

VERDICT_FORMAT = "vst-verdict/1"
SIGNALS = {
    signal.SIGINT: EXIT_INTERRUPTED,
    signal.SIGTERM: EXIT_TERMINATED,
    signal.SIGHUP: EXIT_TERMINATED,
    signal.SIGUSR2: EXIT_TERMINATED,
}


class Interrupted(BaseException):
    """A signal asked the run to end; ``code`` is the exit code that says so."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(name)
        self.code = code


def task(cfg: DictConfig) -> int:
    """One run: returns its exit code, after the verdict was written. A wrong configuration writes nothing."""
    try:
        conf = config.load(cfg)
        _lane(conf.lane.name)  # takes time to import: not between the run directory and the handlers of signals
        run = open_run(cfg, conf)
    except ConfigError as error:
        print(f"vst: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except StorageFailure as error:
        print(f"vst: {error}; free space and start again", file=sys.stderr)
        return EXIT_CODES[Outcome.ERROR]
    except OSError as error:
        print(f"vst: the run directory cannot be used: {error}", file=sys.stderr)
        return EXIT_CONFIG
    return execute(conf, run)


def execute(conf: VstConf, run: RunDir) -> int:
    """Run the lane in a run directory that was opened; every end leaves a verdict there."""
    restore = early_signals.hold(SIGNALS)
    from vst.console import RunConsole
    from vst.lanes.session import Session

    console = RunConsole()
    console.say(f"lane {conf.lane.name}, run directory {run.path}")
    session = Session(conf, run, console)
    verdict = Verdict(conf.lane.name)
    pinned: LaneVerdict | None = None
    ended: BaseException | None = None
    try:
        _catch_signals()
        pinned = look_around(run, conf.snapshot, conf.provenance)
        if pinned is None or pinned.passed:
            _lane(conf.lane.name)(session, verdict, console.lane)
    except Interrupted as stop:
        ended = stop
        with suppress(StorageFailure):
            run.event("interrupted", signal=str(stop))
        verdict.interrupted = stop.code
        _taint(session, f"interrupted by {stop}")
    except ConfigError as error:
        ended = error
        verdict.interrupted = EXIT_CONFIG
        verdict.lanes.append(_unfinished(error, Outcome.REFUSED))
    except VstError as error:
        ended = error
        _taint(session, str(error))
        verdict.lanes.append(_unfinished(error, Outcome.ERROR if isinstance(error, TransportError) else Outcome.FAIL))
    except Exception as error:  # a fault of ours: the verdict says so, and the traceback is shown
        ended = error
        _taint(session, f"{type(error).__name__}: {error}")
        verdict.lanes.append(_unfinished(error, Outcome.ERROR))
        sys.excepthook(type(error), error, error.__traceback__)
    _ignore_signals()
    if pinned is not None:
        verdict.lanes.insert(0, pinned)
    try:
        return _end(session, verdict, console, ended)
    except StorageFailure as error:
        print(f"vst: {run.scrubber.text(str(error))}; free space and start again: no verdict was written, what is "
              "there says in_progress", file=sys.stderr)  # fmt: skip
        return EXIT_CODES[Outcome.ERROR]
    finally:
        restore()


def _lane(name: str) -> Callable[[Session, Verdict, Callable[[LaneVerdict], None]], None]:
    from vst.lanes import ladder, operate, publish, records, selftest

    operations = {
        "publish": publish.publish,
        "lifecycle": operate.operate,
        "record": records.record,
        "compare": records.compare,
        "selftest": selftest.selftest,
    }
    return operations.get(name, ladder.climb)


def _unfinished(error: BaseException, outcome: Outcome) -> LaneVerdict:
    reason = f"{type(error).__name__}: {error}"
    return LaneVerdict("run", (Check("run.completed", outcome, expected="the run ends by itself", reason=reason),))


def _taint(session: Session, reason: str) -> None:
    """An end in the middle leaves a server that is not proven; one that was not touched keeps its state."""
    fleet = session.fleet
    if fleet is not None and session.transactions and not (fleet.verified and fleet.state == "serving"):
        fleet.taint(reason)


def _end(session: Session, verdict: Verdict, console: RunConsole, ended: BaseException | None) -> int:
    from vst.lanes.servers import close
    from vst.lanes.state_at_end import state_at_end

    server = state_at_end(session)
    with suppress(StorageFailure):
        close(session)
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
    session.run.finish(content, outcome)
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


def _catch_signals() -> None:
    """From now on a signal ends the run with a verdict; one that came earlier does so at once."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        # A second signal, while the first is being answered, ends the process at once.
        for again in SIGNALS:
            signal.signal(again, signal.SIG_DFL)
        raise Interrupted(SIGNALS[signal.Signals(number)], signal.Signals(number).name)

    for number in SIGNALS:
        signal.signal(number, stop)
    if (early := early_signals.take()) is not None:
        stop(early, None)


def _ignore_signals() -> None:
    """The end is short and must be whole; a second Ctrl-C was answered before, here it would cost the evidence."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    """The command line: Hydra composes, ``task`` or a launcher runs, the worst exit code of all runs is returned."""
    from vst.cluster.shape import mode_of, unknown_overrides

    config.register()
    exit_codes.forget()
    if unknown := unknown_overrides(sys.argv[1:]):
        print("\n".join(f"vst: {message}" for message in unknown), file=sys.stderr)
        return EXIT_CONFIG

    def remember(cfg: DictConfig) -> int:
        code = task(cfg)
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
