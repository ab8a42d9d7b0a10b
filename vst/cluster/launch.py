"""Sending out the runs of a sweep, waiting for them, and saying how they ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from vst import exit_codes
from vst.cluster.local import LocalQueue
from vst.cluster.outcome import never_sent
from vst.cluster.pages import draw_pages
from vst.cluster.prepare import Prepared, expect_enough_devices, prepare, with_worktree
from vst.cluster.resume import earlier_sweep, skip_passed
from vst.cluster.shape import LocalShape, Shape, SlurmShape
from vst.cluster.slurm import SlurmQueue, write_scripts
from vst.cluster.sweep import LAUNCH_DIR, Sweep
from vst.cluster.table import SweepShown, make_sweep_console
from vst.cluster.watch import Watch
from vst.errors import ConfigError, TransportError, VstError
from vst.harmless import visible
from vst.insist import Insistent
from vst.provenance.atomic import write_atomic
from vst.provenance.redaction import Scrubber
from vst.verdict import EXIT_CODES, EXIT_CONFIG, EXIT_INTERRUPTED, EXIT_PASS, EXIT_TERMINATED, Outcome

CANCEL_WAIT_S = 20.0
SIGNALS = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED}


class Stopped(BaseException):
    """A signal asked the launcher to end; ``code`` is the exit code that says so."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Request:
    """What Hydra gives to a launcher, and the sweep as far as earlier batches of it went."""

    context: HydraContext
    config: DictConfig
    shape: Shape
    sweep: Sweep | None = None


def launch(request: Request, overrides: Sequence[Sequence[str]], first: int) -> list[int]:
    """Send out one batch of runs; their exit codes. Ends the process when it was refused or interrupted."""
    setup_globals()
    before = HydraConfig.instance().cfg
    console = make_sweep_console(str(request.config.console))
    try:
        return _launch(request, overrides, first, console)
    except VstError as error:
        print(f"vst: {visible(error)}", file=sys.stderr)
        exit_codes.note([_code_of(error)])
        raise SystemExit(_code_of(error)) from error
    finally:
        HydraConfig.instance().cfg = before


def _launch(request: Request, overrides: Sequence[Sequence[str]], first: int, console: SweepShown) -> list[int]:
    config, shape = request.config, request.shape
    path = Path(str(config.hydra.sweep.dir)).expanduser().absolute()
    earlier = earlier_sweep(path, bool(config.launch.resume)) if request.sweep is None else None
    expect_sense(config, shape)
    prepared = prepare(request.context, config, overrides, first, path)
    expect_enough_devices(prepared, shape)
    worktree = snapshot_worktree(config)
    to_run = skip_passed(prepared, earlier)
    sweep = request.sweep = request.sweep or new_sweep(path, shape)
    mask_multirun(path)
    sweep.runs += [one.run for one in prepared]
    write_specs(to_run, path, worktree)
    if config.launch.dry_run:
        return _dry_run(sweep, shape, worktree, console)
    return _send(sweep, shape, worktree, config, console)


def expect_sense(config: DictConfig, shape: Shape) -> None:
    """ConfigError for what the launcher would have to ignore."""
    if isinstance(shape, LocalShape) and not config.launch.wait:
        raise ConfigError("launch.wait=false leaves runs to SLURM; local processes end with the launcher")
    given = list(config.hydra.overrides.hydra)
    if isinstance(shape, SlurmShape) and any(word.startswith("hydra.run.dir=") for word in given):
        raise ConfigError("hydra.run.dir has no meaning for jobs: give hydra.sweep.dir, and hydra.sweep.subdir in it")


def _code_of(error: VstError) -> int:
    if isinstance(error, ConfigError):
        return EXIT_CONFIG
    return EXIT_CODES[Outcome.ERROR if isinstance(error, TransportError) else Outcome.REFUSED]


def new_sweep(path: Path, shape: Shape) -> Sweep:
    """An empty sweep in a directory that is there afterwards."""
    (path / LAUNCH_DIR).mkdir(parents=True, exist_ok=True)
    name = "slurm" if isinstance(shape, SlurmShape) else "local"
    settings = {"unseen_s": shape.unseen_s} if isinstance(shape, SlurmShape) else {}
    return Sweep(path, name, Scrubber.of(list(sys.argv), os.environ).foreign_tree(sys.argv), settings=settings)


def mask_multirun(path: Path) -> None:
    """Hydra writes the sweep's configuration down as it stands; a secret in it becomes a mask."""
    written = path / "multirun.yaml"
    if written.exists():
        content = OmegaConf.to_container(OmegaConf.load(written))
        masked = Scrubber.of(content, os.environ).foreign_tree(content)
        write_atomic(written, OmegaConf.to_yaml(masked).encode())


def snapshot_worktree(config: DictConfig) -> str | None:
    """The worktree of the snapshot that the runs are to be made from; it is verified before anything is sent out."""
    manifest = OmegaConf.select(config, "snapshot.manifest")
    if not manifest:
        return None
    if config.snapshot.root:
        return str(config.snapshot.root)  # only where it is mounted can it be verified; the job does that
    from vst.snapshot import load_and_verify

    return str(load_and_verify(Path(manifest).expanduser().absolute()).worktree)


def write_specs(prepared: Sequence[Prepared], path: Path, worktree: str | None) -> None:
    """Write what each job gets; nothing is sent out before all of it is on the disk."""
    for one in prepared:
        with_worktree(one.spec, worktree).write(path / one.run.spec)


def _dry_run(sweep: Sweep, shape: Shape, worktree: str | None, console: SweepShown) -> list[int]:
    folder = sweep.path / LAUNCH_DIR
    console.say(f"dry run: nothing is submitted; {len(list(sweep.unfinished()))} resolved configuration(s) in {folder}")
    if isinstance(shape, SlurmShape):
        for script in write_scripts(shape, sweep, folder, worktree):
            console.say(f"script: {script}")
    exit_codes.note([EXIT_PASS])
    return [EXIT_PASS] * len(sweep.runs)


def _send(sweep: Sweep, shape: Shape, worktree: str | None, config: DictConfig, console: SweepShown) -> list[int]:
    queue: SlurmQueue | LocalQueue = (
        SlurmQueue(shape, sweep, worktree, console.say)
        if isinstance(shape, SlurmShape)
        else LocalQueue(shape, sweep, worktree, console.say)
    )
    queue.add([run for run in sweep.unfinished() if run.job is None])
    watch = Watch(sweep, queue, console.ended)
    sweep.watch()
    sweep.write()
    try:
        with signals_raise():
            watch.until_all_ended() if config.launch.wait else watch.until_all_submitted()
    except VstError as error:
        _cancelled(sweep, queue, watch, console, str(error))
        raise
    except Stopped as stop:
        _cancelled(sweep, queue, watch, console, "the launcher was stopped")
        exit_codes.note([stop.code, *_codes(sweep)])
        raise SystemExit(stop.code) from stop
    return _finished(sweep, console)


def _finished(sweep: Sweep, console: SweepShown) -> list[int]:
    sweep.watcher = None
    sweep.write()
    console.table(sweep)
    draw_pages(sweep, console.say)
    if any(sweep.unfinished()):
        console.say(f"submitted, nothing is proven yet; look with: python -m vst.status {sweep.path}")
        exit_codes.note([EXIT_PASS])
        return [EXIT_PASS] * len(sweep.runs)
    exit_codes.note(_codes(sweep))
    return _codes(sweep)


def _codes(sweep: Sweep) -> list[int]:
    return [run.ending.exit_code if run.ending else EXIT_CODES[Outcome.ERROR] for run in sweep.runs]


def _cancelled(sweep: Sweep, queue: SlurmQueue | LocalQueue, watch: Watch, console: SweepShown, reason: str) -> None:
    """Cancel what was sent out, wait a little for the verdicts of what was running, and leave the file at that."""
    console.say(f"cancelling: {reason}")
    queue.cancel()
    for run in list(sweep.unfinished()):
        if run.job is None:
            run.end(never_sent(reason))
    sweep.write()
    watch.until_all_ended(CANCEL_WAIT_S)
    sweep.watcher = None
    sweep.write()
    console.table(sweep)
    draw_pages(sweep, console.say)


@contextmanager
def signals_raise() -> Iterator[None]:
    """SIGINT and SIGTERM become ``Stopped``; a second one, while the first is answered, ends the process at once."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    insistent = Insistent()

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        for again in SIGNALS:
            signal.signal(again, signal.SIG_DFL)
        insistent.throw(Stopped(SIGNALS[signal.Signals(number)]))

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        insistent.arrived()
        _restore(before)


def _restore(before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None]) -> None:
    for number, handler in before.items():
        # After a signal the default stays: a second one must not wait for what the first one began.
        if signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, handler)
