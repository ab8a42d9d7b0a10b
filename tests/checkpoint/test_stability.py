from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.stability import changed, identities, stable_check
from vst.errors import VerificationError
from vst.verdict import Outcome

SHARD = "model-00002-of-00003.safetensors"


def test_untouched_checkpoint_is_stable(pristine: tuple[Path, Path]) -> None:
    before = identities(read_manifest(pristine[0]))
    check = stable_check(before, identities(read_manifest(pristine[0])))
    assert check.outcome is Outcome.PASS and check.observed["files"] == 8
    assert before == identities(pristine[0])


def test_rewritten_replaced_removed_and_added_files_are_named(pristine: tuple[Path, Path], tmp_path: Path) -> None:
    directory = shutil.copytree(pristine[0], tmp_path / "c")
    before = identities(directory)
    os.utime(directory / SHARD, ns=(5, 5))
    (directory / "config.json").unlink()
    (directory / "new").write_text("")
    after = identities(directory)
    assert changed(before, after) == ["config.json", SHARD, "new"]
    check = stable_check(before, after)
    assert check.outcome is Outcome.FAIL and SHARD in check.reason


def test_file_put_back_with_its_old_time_is_still_noticed(pristine: tuple[Path, Path], tmp_path: Path) -> None:
    directory = shutil.copytree(pristine[0], tmp_path / "c")
    manifest = read_manifest(directory)
    before = identities(manifest)
    shutil.copy2(directory / SHARD, directory / "copy")
    os.replace(directory / "copy", directory / SHARD)
    assert changed(before, identities(manifest)) == [SHARD]


def test_link_is_followed_to_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "data").write_text("1")
    (tmp_path / "d" / "link").symlink_to("../data")
    before = identities(tmp_path / "d")
    (tmp_path / "data").write_text("12")
    assert changed(before, identities(tmp_path / "d")) == ["link"]


def test_unreadable_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError):
        identities(tmp_path / "absent")
