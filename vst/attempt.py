"""Attempts of one run: started again, it gets a new directory beside the first and reuses nothing of what it left.

The first attempt lies in the run directory itself, the next ones in ``<directory>.attempt-2``, ``.attempt-3``, …
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

MARK = ".attempt-"
RUN_FILE = "run.json"


def attempt_directory(base: Path, number: int) -> Path:
    """The directory of attempt ``number`` (from 1) of the run at ``base``."""
    return base if number == 1 else base.with_name(f"{base.name}{MARK}{number}")


def attempt_number(path: Path) -> int:
    """Which attempt a run directory is."""
    _, mark, number = path.name.rpartition(MARK)
    return int(number) if mark and number.isdigit() else 1


def base_directory(path: Path) -> Path:
    """The directory of the first attempt of the run that ``path`` is an attempt of."""
    return path.with_name(path.name.rpartition(MARK)[0]) if attempt_number(path) > 1 else path


def attempts_begun(base: Path) -> int:
    """How many attempts have left a ``run.json``; they are numbered without a gap."""
    return next(n for n in itertools.count(1) if not (attempt_directory(base, n) / RUN_FILE).exists()) - 1


def claim(base: Path) -> Path:
    """The directory of the next attempt, made and empty of any run; two that ask at once get different ones."""
    for number in itertools.count(attempts_begun(base) + 1):
        path = attempt_directory(base, number)
        try:
            path.mkdir(parents=True, exist_ok=number == 1)
        except FileExistsError:
            continue
        return path
    raise AssertionError("itertools.count has no end")


def begun_transaction(path: Path) -> bool:
    """Whether the attempt at ``path`` had begun a transaction, so that a server may hold part of something."""
    return any(path.glob("weight-update*.json"))


def left_half_done(path: Path) -> Path | None:
    """The attempt before ``path``, if it had begun a transaction and did not come to its own end; else None."""
    number = attempt_number(path)
    before = attempt_directory(base_directory(path), number - 1) if number > 1 else None
    if before is None or not begun_transaction(before):
        return None
    run = read_json(before / RUN_FILE)
    return before if run is None or run.get("state") != "complete" or run.get("exit_code", 0) >= 128 else None


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, None when it is not there or not whole yet."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
