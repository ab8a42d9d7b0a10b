"""Real checkpoints for the tests: a tiny pair per session, copies of it per test."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vst.checkpoint.audit import AuditOptions, audit
from vst.checkpoint.storage import Mount
from vst.checkpoint.tiny import make_tiny_pair
from vst.verdict import Check

LOCAL = [Mount("/", "ext4", "/dev/root")]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_tiny_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def pair(pristine: tuple[Path, Path], tmp_path: Path) -> dict[str, Path]:
    """A copy of the pair that a test may spoil."""
    a, b = (shutil.copytree(path, tmp_path / path.name) for path in pristine)
    return {"model": a, "checkpoint": b}


@pytest.fixture
def checks() -> Callable[..., dict[str, Check]]:
    """The checks of an audit by id, on a machine with one local disk."""

    def run(pair: dict[str, Path], trusted: dict[str, Path] | None = None, **options: Any) -> dict[str, Check]:
        result = audit(pair, AuditOptions(**options), trusted, mounts=LOCAL)
        found = {check.id: check for check in result.checks}
        json.dumps([check.to_json() for check in result.checks])
        return found

    return run
