"""From a composed configuration to a verdict on disk and an exit code; importable, so that a cluster can pickle it."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vst import config
from vst.confdir import conf_dir
from vst.config import VstConf
from vst.errors import ConfigError, TransportError, VstError
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.verdict import (
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
SIGNALS = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED, signal.SIGUSR2: EXIT_TERMINATED}


class Interrupted(BaseException):
    """A signal asked the run to end; ``code`` is the exit code that says so."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(name)
        self.code = code


def task(cfg: DictConfig) -> int:
    """One run: returns its exit code, after the verdict was written. A wrong configuration writes nothing."""
    try:
        conf = config.load(cfg)
    except ConfigError as error:
        print(f"vst: {error}", file=sys.stderr)
        return EXIT_CONFIG
    hydra_conf = HydraConfig.get()
    text = OmegaConf.to_yaml(cfg, resolve=True, sort_keys=True)
    request = Request(
        argv=tuple(sys.argv),
        overrides=tuple(hydra_conf.overrides.task),
        config_digest="sha256:" + hashlib.sha256(text.encode()).hexdigest(),
    )
    try:
        run = RunDir(Path(hydra_conf.runtime.output_dir), request)
    except OSError as error:
        print(f"vst: the run directory cannot be used: {error}", file=sys.stderr)
        return EXIT_CONFIG
    return execute(conf, run)


def execute(conf: VstConf, run: RunDir) -> int:
    """Run the lane in a run directory that was opened; every end leaves a verdict there."""
    from vst.console import RunConsole
    from vst.lanes.session import Session

    console = RunConsole()
    console.say(f"lane {conf.lane.name}, run directory {run.path}")
    session = Session(conf, run, console)
    verdict = Verdict(conf.lane.name)
    restore = _catch_signals()
    try:
        _lane(conf.lane.name)(session, verdict, console.lane)
    except Interrupted as stop:
        verdict.interrupted = stop.code
        _taint(session, f"interrupted by {stop}")
    except ConfigError as error:
        verdict.interrupted = EXIT_CONFIG
        verdict.lanes.append(_unfinished(error, Outcome.REFUSED))
    except VstError as error:
        _taint(session, str(error))
        verdict.lanes.append(_unfinished(error, Outcome.ERROR if isinstance(error, TransportError) else Outcome.FAIL))
    except Exception as error:  # a fault of ours: the verdict says so, and the traceback is shown
        _taint(session, f"{type(error).__name__}: {error}")
        verdict.lanes.append(_unfinished(error, Outcome.ERROR))
        sys.excepthook(type(error), error, error.__traceback__)
    _ignore_signals()
    try:
        return _end(session, verdict, console)
    finally:
        restore()


def _lane(name: str) -> Callable[[Session, Verdict, Callable[[LaneVerdict], None]], None]:
    from vst.lanes import ladder, publish, records

    operations = {"publish": publish.publish, "record": records.record, "compare": records.compare}
    return operations.get(name, ladder.climb)


def _unfinished(error: BaseException, outcome: Outcome) -> LaneVerdict:
    reason = f"{type(error).__name__}: {error}"
    return LaneVerdict("run", (Check("run.completed", outcome, expected="the run ends by itself", reason=reason),))


def _taint(session: Session, reason: str) -> None:
    """An end in the middle leaves a server that is not proven; one that was not touched keeps its state."""
    lifecycle = session.lifecycle
    if lifecycle is not None and session.transactions and not (lifecycle.verified and lifecycle.state == "serving"):
        lifecycle.taint(reason)


def _end(session: Session, verdict: Verdict, console: RunConsole) -> int:
    server = _server_state(session)
    session.close()
    verdict.server_state = server["state"]
    verdict.covered = session.covered
    content = {
        "format": VERDICT_FORMAT,
        "lane": verdict.lane,
        "verdict": verdict.word,
        "cause": verdict.cause.value if verdict.cause else None,
        "interrupted": verdict.interrupted is not None,
        "exit_code": verdict.exit_code,
        "noise_floor": session.floor,
        "covered": verdict.covered,
        "server": server,
        "lanes": [lane.to_json() for lane in verdict.lanes],
    }
    outcome = {"exit_code": verdict.exit_code, "verdict": verdict.word, "server": server, "attempt": 1}
    session.run.finish(content, outcome)
    console.end(verdict, server, str(session.run.path))
    return verdict.exit_code


def _server_state(session: Session) -> dict[str, Any]:
    """Where the server is at the end, what it holds, and what becomes of it now."""
    lifecycle = session.lifecycle
    if session.server is None:
        return {"state": "unknown", "holds": "unknown", "left": "no server was used"}
    state = lifecycle.state if lifecycle else "unknown"
    if session.server.process is not None:
        if not session.server.process.alive:
            state = "tainted" if state == "tainted" else "dead"
        left = "stopped"
    else:
        left = {"tainted": "paused, if it still answered", "serving": "serving"}.get(state, "as it was found")
    return {"state": state, "holds": lifecycle.holds if lifecycle else "unknown", "left": left}


def _catch_signals() -> Callable[[], None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        # A second signal, while the first is being answered, ends the process at once.
        for again in SIGNALS:
            signal.signal(again, signal.SIG_DFL)
        raise Interrupted(SIGNALS[signal.Signals(number)], signal.Signals(number).name)

    for number in SIGNALS:
        signal.signal(number, stop)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def _ignore_signals() -> None:
    """The end is short and must be whole; a second Ctrl-C was answered before, here it would cost the evidence."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    """The command line: Hydra composes, ``task`` runs, the worst exit code of all runs is returned."""
    config.register()
    codes: list[int] = []

    def remember(cfg: DictConfig) -> int:
        codes.append(task(cfg))
        return codes[-1]

    OmegaConf.register_new_resolver("pid", os.getpid, replace=True)
    decorated = hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(remember)
    try:
        decorated()
    except SystemExit as stop:
        # Hydra ends with 1 when it cannot compose; with 0 after --help and its kin.
        return EXIT_CONFIG if stop.code and not codes else int(stop.code or 0)
    return worst(codes)
