from __future__ import annotations

import threading
from pathlib import Path

import pytest

from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.storage import Mount
from vst.checkpoint.writer import write_safetensors
from vst.transfer import prefetch
from vst.transfer.parts import mixed
from vst.transfer.prefetch import Prefetch, prefetch_for


class Noting(Prefetch):
    """Tells which shards were fetched, and when."""

    def __init__(self, shards: list[Path], ahead: int) -> None:
        super().__init__(shards, ahead)
        self.fetched: list[str] = []
        self.more = threading.Semaphore(0)

    def _fetch(self, path: Path, buffer: memoryview) -> None:
        super()._fetch(path, buffer)
        self.fetched.append(path.name)
        self.more.release()


def test_shards_are_fetched_in_order_and_not_far_ahead_of_what_is_read(tmp_path: Path) -> None:
    shards = [tmp_path / str(number) for number in range(6)]
    for shard in shards:
        shard.write_bytes(b"x" * 1000)
    ahead = Noting(shards, 1)
    ahead.start()
    for reached, expected in ((0, 2), (2, 4), (5, 6)):
        ahead.reach(shards[reached])
        while len(ahead.fetched) < expected:
            assert ahead.more.acquire(timeout=10)
        assert ahead.fetched == [str(number) for number in range(expected)]
    ahead._thread.join(10)
    assert not ahead._thread.is_alive()


def test_a_shard_that_cannot_be_fetched_is_left_to_the_reader(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"x")
    ahead = Noting([tmp_path / "missing", tmp_path / "b"], 5)
    ahead.start()
    ahead._thread.join(10)
    assert ahead.fetched == ["b"]


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    ahead = Prefetch([tmp_path / str(number) for number in range(9)], 1)
    ahead.start()
    ahead.stop()
    ahead._thread.join(10)
    assert not ahead._thread.is_alive()


@pytest.mark.parametrize(("fstype", "expected"), [("ext4", None), ("nfs4", ["model.safetensors"])])
def test_only_shards_on_network_file_systems_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fstype: str, expected: list[str] | None
) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"a": ("U8", (3,), b"abc")})
    monkeypatch.setattr(prefetch, "read_mounts", lambda: [Mount("/", fstype, "source")])
    found = prefetch_for(mixed(read_manifest(tmp_path), None, ()))
    assert (None if found is None else [path.name for path in found._shards]) == expected
