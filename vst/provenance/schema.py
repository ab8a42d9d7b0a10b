"""The published JSON schemas of what a run writes, one for each format, and validation of a whole run directory.

Draft 2020-12. A format's number goes up with every change that a reader could notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vst.errors import ConfigError
from vst.provenance.sidecar import SUFFIX

NAMES = (
    "verdict", "run", "sidecar", "record", "reference", "weight-update", "manifest", "lifecycle", "evaluation",
    "comparison",
)  # fmt: skip
_FILES = {
    "verdict.json": "verdict",
    "run.json": "run",
    "reference.json": "reference",
    "lifecycle.json": "lifecycle",
}
_PREFIXES = {
    "record-": "record",
    "weight-update": "weight-update",
    "manifest-": "manifest",
    "comparison-": "comparison",
}

LINES = ".jsonl"
"""Files of one JSON object a line; the schema is that of a line."""


def schema(name: str) -> dict[str, Any]:
    """The schema called ``name`` (one of ``NAMES``); ConfigError for another name."""
    if name not in NAMES:
        raise ConfigError(f"there is no schema {name!r}, expected one of {', '.join(NAMES)}")
    content: dict[str, Any] = json.loads(_path(name).read_text(encoding="utf-8"))
    return content


def _path(name: str) -> Path:
    return Path(__file__).with_name("schemas") / f"{name}.json"


def schema_for(file: str) -> str | None:
    """Which schema a file of a run directory has to meet, by its name; None for logs, pages and Hydra's files."""
    if file.endswith(SUFFIX):
        return "sidecar"
    if file in _FILES:
        return _FILES[file]
    if file.startswith("evaluation-") and file.endswith(LINES):
        return "evaluation"
    return next(
        (name for prefix, name in _PREFIXES.items() if file.startswith(prefix) and file.endswith(".json")), None
    )


def validate_run(run_dir: Path) -> list[str]:
    """Every disagreement between the files of a run directory and their schemas, as ``file: place: message``.

    ConfigError when the package jsonschema is not installed.
    """
    try:
        from jsonschema import Draft202012Validator
    except ImportError as error:
        raise ConfigError("validation needs the package jsonschema; it comes with the extra test") from error
    validators = {name: Draft202012Validator(schema(name)) for name in NAMES}
    return [
        f"{file}: {'/'.join(map(str, error.absolute_path)) or '(top)'}: {error.message[:300]}"
        for file, name in _described(run_dir)
        for content in _contents(run_dir / file)
        for error in validators[name].iter_errors(content)
    ]


def _contents(path: Path) -> list[Any]:
    """What a schema is about: the whole file, or each of its lines."""
    lines = path.read_bytes().splitlines() if path.name.endswith(LINES) else [path.read_bytes()]
    return [json.loads(line) for line in lines]


def _described(run_dir: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(run_dir.rglob("*")):
        file = str(path.relative_to(run_dir))
        name = schema_for(file) if path.is_file() else None
        if name is not None:
            yield file, name
