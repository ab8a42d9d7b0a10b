"""Make things so that a failure half-way can take back exactly what was made."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from vst.errors import ConfigError, VerificationError
from vst.insist import Insistent


def make_directories(path: Path, undo: ExitStack) -> None:
    """Create a directory and its missing parents; undoing removes those that are still empty."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"cannot create {folder}: {error.strerror}; choose another place") from error
        undo.callback(_remove_if_empty, folder)
    if not path.is_dir():
        raise ConfigError(f"{path} is not a directory; choose another place")


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def publish(staged: Path, target: Path, undo: ExitStack) -> None:
    """Give a finished file its name at once; VerificationError when something has that name already."""
    with open(staged, "rb") as handle:
        os.fsync(handle.fileno())
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError as error:
        raise VerificationError(f"{target} exists already; give each run its own --result-dir") from error
    undo.callback(target.unlink, missing_ok=True)
    os.replace(staged, target)


@contextmanager
def terminated_as_exception() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that what was made is taken back before the process ends."""

    insistent = Insistent()

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        insistent.throw(SystemExit(128 + number))

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: the caller owns the signals
        yield
        return
    try:
        yield
    finally:
        insistent.arrived()
        signal.signal(signal.SIGTERM, before)
