from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from vst.checkpoint.audit import audit
from vst.checkpoint.derived import derive
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.checkpoint.mixture import write_mixture
from vst.errors import VerificationError
from vst.verdict import Outcome


@pytest.fixture(scope="module")
def both(pristine: tuple[Path, Path]) -> tuple[Manifest, Manifest]:
    a, b = (with_digests(read_manifest(path), None) for path in pristine)
    return a, b


def test_a_mixture_has_the_named_tensors_of_the_other_one_and_is_a_checkpoint(
    both: tuple[Manifest, Manifest], tmp_path: Path
) -> None:
    a, b = both
    names = ("lm_head.weight", "model.layers.1.mlp.up_proj.weight")
    write_mixture(tmp_path / "m", b, a, names)
    result = audit({"model": tmp_path / "m"})
    assert {check.outcome for check in result.checks} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}
    for entry in result.manifests["model"].tensors:
        assert entry.digest == (a if entry.name in names else b).by_name[entry.name].digest
    assert {path.name for path in (tmp_path / "m").iterdir()} == {"model.safetensors", *b.files}


def test_what_cannot_be_mixed_is_refused_before_anything_is_written(
    both: tuple[Manifest, Manifest], tmp_path: Path
) -> None:
    a, b = both
    with pytest.raises(VerificationError, match="has no tensor nobody"):
        write_mixture(tmp_path / "m", b, a, ["nobody"])
    other = Manifest(a.path, a.tensors[1:], a.shards, a.files)
    with pytest.raises(VerificationError, match="another layout"):
        write_mixture(tmp_path / "m", b, other, [])
    assert not (tmp_path / "m").exists()


def test_a_full_disk_is_said_before_anything_is_written(
    both: tuple[Manifest, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = both
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=b.total_bytes))
    with pytest.raises(VerificationError, match=f"{b.total_bytes} bytes are free, .* make room, or set paths.cache"):
        write_mixture(tmp_path / "m", b, a, [])
    with pytest.raises(VerificationError, match="make room, or set paths.cache"):
        derive(b.path, tmp_path / "derived")
    assert not (tmp_path / "m").exists()
    assert {path.name for path in (tmp_path / "derived").iterdir()} == {".lock"}
