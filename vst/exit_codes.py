"""The exit codes of this process's runs: Hydra hands back neither a task's nor a launcher's result."""

from __future__ import annotations

from collections.abc import Iterable

_codes: list[int] = []


def forget() -> None:
    """Begin a new command line."""
    _codes.clear()


def note(codes: Iterable[int]) -> None:
    """Add the exit codes of runs that have ended."""
    _codes.extend(codes)


def noted() -> tuple[int, ...]:
    """All exit codes since ``forget``."""
    return tuple(_codes)
