"""Where the checkpoints of a run lie."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vst.errors import ConfigError
from vst.lanes.files import resolve_paths


def session(model: Path, checkpoint: Path) -> Any:
    conf = SimpleNamespace(
        model=SimpleNamespace(path=str(model), generate=None),
        checkpoint=SimpleNamespace(path=str(checkpoint)),
        lane=SimpleNamespace(name="L0", upto="L0"),
    )
    return SimpleNamespace(conf=conf)


def test_a_path_that_is_no_directory_is_a_wrong_value_and_says_nothing_about_a_checkpoint(tmp_path: Path) -> None:
    here, file = tmp_path / "a", tmp_path / "config.json"
    here.mkdir()
    file.touch()
    assert resolve_paths(session(here, here)) == {"model": here, "checkpoint": here}
    with pytest.raises(ConfigError, match=r"model\.path=.*none is not a readable directory: No such file"):
        resolve_paths(session(tmp_path / "none", here))
    with pytest.raises(ConfigError, match=r"checkpoint\.path=.*config\.json is not a readable directory"):
        resolve_paths(session(here, file))
