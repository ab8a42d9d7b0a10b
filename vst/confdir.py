"""Where the YAML files are."""

from __future__ import annotations

from pathlib import Path


def conf_dir() -> Path:
    """The directory of the YAML files: inside the package when installed from a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"
