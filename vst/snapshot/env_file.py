"""Read a Docker-style file of KEY=VALUE lines."""

from __future__ import annotations

from pathlib import Path


def read_env_file(path: Path) -> dict[str, str | None] | None:
    """The variables (None for one that is taken from outside), or None when the file cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    values: dict[str, str | None] = {}
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            key, sign, value = line.strip().removeprefix("export ").partition("=")
            values[key.strip()] = value.strip().strip("\"'") if sign else None
    return values
