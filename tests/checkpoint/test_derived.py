from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from vst.checkpoint.audit import audit
from vst.checkpoint.derived import derive, other_values
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import TensorEntry, read_manifest
from vst.checkpoint.zoo.make import make_zoo_pair
from vst.errors import VerificationError
from vst.verdict import Outcome


@pytest.mark.parametrize("name", ["mixtral", "llama-int8", "llama-gptq", "mamba2"])
def test_a_has_the_layout_of_b_and_other_values_wherever_values_may_differ(tmp_path: Path, name: str) -> None:
    b = make_zoo_pair(tmp_path / "zoo", name)[1]
    a = derive(b, tmp_path / "derived")
    result = audit({"model": a, "checkpoint": b})
    assert {check.outcome for check in result.checks} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}
    one, other = result.manifests["model"], result.manifests["checkpoint"]
    same = {e.name.rpartition(".")[2] for e, f in zip(one.tensors, other.tensors, strict=True) if e.digest == f.digest}
    assert same <= {"g_idx", "qzeros"}


def test_a_tensor_of_one_value_is_spread_and_never_left_as_it_is() -> None:
    entry = TensorEntry("model.norm.weight", "BF16", (64,), 128, "x", 0)
    ones = (np.ones(64, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    found = (np.frombuffer(other_values(entry, ones), "<u2").astype("<u4") << 16).view("<f4")
    assert len(set(found.tolist())) > 10 and abs(float(found.mean()) - 1) < 0.1


def test_quantised_rows_are_shifted_and_stay_valid() -> None:
    entry = TensorEntry("q.qweight", "I32", (3, 2), 24, "x", 0)
    assert other_values(entry, bytes(range(24))) == bytes([*range(8, 24), *range(8)])


def test_it_is_made_once_and_anew_when_damaged_or_when_b_changed(pristine: tuple[Path, Path], tmp_path: Path) -> None:
    b = shutil.copytree(pristine[1], tmp_path / "b")
    a = derive(b, tmp_path / "cache")
    inode, content = a.stat().st_ino, with_digests(read_manifest(a), None).content_digest
    assert derive(b, tmp_path / "cache").stat().st_ino == inode
    (a / "config.json").write_text("{}")
    assert with_digests(read_manifest(derive(b, tmp_path / "cache")), None).content_digest == content
    assert (a / "config.json").read_text() == (b / "config.json").read_text()
    shard = next(b.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes())
    assert derive(b, tmp_path / "cache") != a


def test_a_checkpoint_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError):
        derive(tmp_path, tmp_path / "cache")
