"""Which records are kept as references for later runs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oracle.answers import record

from vst.checkpoint.stability import identities
from vst.errors import VerificationError
from vst.lanes import references
from vst.lanes.references import keep, obtain
from vst.oracle.reference import Reference, ReferenceKey
from vst.server.facts import Instance, ServerFacts

KEY = ReferenceKey("blake3:b", {}, ("cpu",), {}, {}, "probes")
FACTS = ServerFacts("0.32.0", (), (), 1, False, False, "default", Instance("1", None))


def session(tmp_path: Path, kind: str = "cpu", given: Path | None = None) -> Any:
    checkpoint = tmp_path / "b"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"as it was audited")
    oracle = SimpleNamespace(reference_cache=True, reference=str(given) if given else None)
    conf = SimpleNamespace(
        server=SimpleNamespace(kind=kind), oracle=oracle, paths=SimpleNamespace(cache=str(tmp_path / "cache"))
    )
    manifest = SimpleNamespace(path=checkpoint, content_digest="blake3:b")
    return SimpleNamespace(
        conf=conf,
        manifests={"checkpoint": manifest},
        audited={"checkpoint": identities(checkpoint)},
        drafted={},
    )


def stored(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").glob("references/*.json"))


@pytest.mark.parametrize("kind", ["cpu", "attach"])
def test_a_reference_of_a_server_that_was_started_for_it_is_kept(tmp_path: Path, kind: str) -> None:
    found = keep(session(tmp_path, kind), "checkpoint", KEY, record(), FACTS, started=True)
    assert found.content_digest == "blake3:b" and len(stored(tmp_path)) == 1


def test_a_reference_of_a_running_server_is_kept_for_nobody_else(tmp_path: Path) -> None:
    found = keep(session(tmp_path, "attach"), "checkpoint", KEY, record(), FACTS, started=False)
    assert "as far as it tells" in found.source and not stored(tmp_path)


@pytest.mark.parametrize("what", ["rewritten", "put back", "added"])
def test_a_reference_of_files_that_moved_since_the_audit_is_kept_for_no_later_run(tmp_path: Path, what: str) -> None:
    run = session(tmp_path)
    shard = tmp_path / "b" / "model.safetensors"
    if what == "rewritten":
        shard.write_bytes(b"something else")
    elif what == "put back":
        other = tmp_path / "other"
        other.write_bytes(shard.read_bytes())
        os.replace(other, shard)
    else:
        (tmp_path / "b" / "more.safetensors").write_bytes(b"")
    keep(run, "checkpoint", KEY, record(), FACTS, started=True)
    assert not stored(tmp_path)


def test_a_given_reference_of_another_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "read_reference", lambda path: Reference(record(), "blake3:c", {}, str(path)))
    with pytest.raises(VerificationError, match="content blake3:c, and B has blake3:b"):
        obtain(session(tmp_path, given=tmp_path / "reference.json"))
