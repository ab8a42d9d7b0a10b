from __future__ import annotations

from pathlib import Path

import pytest

from vst.selftest.pairs import make_pair


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="session")
def a(checkpoints: Path) -> Path:
    """Checkpoint A of the embedded pair."""
    return make_pair("tiny", checkpoints)[0]


@pytest.fixture(scope="session")
def b(checkpoints: Path) -> Path:
    return make_pair("tiny", checkpoints)[1]
