from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vst.checkpoint.index import INDEX_NAME, find_shards, missing_numbers, read_index, resolve_inside
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.survey import survey
from vst.checkpoint.writer import write_safetensors
from vst.errors import VerificationError

FILES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def index(directory: Path, weight_map: Any, **more: Any) -> None:
    (directory / INDEX_NAME).write_text(json.dumps({"weight_map": weight_map, **more}))


def shard(path: Path, *names: str) -> None:
    write_safetensors(path, {name: ("U8", (4,), b"abcd") for name in names})


def test_directory_without_an_index_has_all_its_safetensors_as_shards(tmp_path: Path) -> None:
    shard(tmp_path / "model.safetensors", "a")
    assert read_index(tmp_path) is None
    assert [item.name for item in find_shards(tmp_path)] == ["model.safetensors"]


def test_directory_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="no .safetensors file"):
        find_shards(tmp_path)
    with pytest.raises(VerificationError, match="not a readable directory"):
        find_shards(tmp_path / "absent")


def test_index_gives_its_map_and_total_size(tmp_path: Path) -> None:
    index(tmp_path, {"a": "x.safetensors"}, metadata={"total_size": 4})
    found = read_index(tmp_path)
    assert found is not None and found.weight_map == {"a": "x.safetensors"} and found.total_size == 4


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"weight_map":{}}', '{"weight_map":{"a":1}}', '{"weight_map":{"a":"x","a":"y"}}', "\ud800"]
    + ['{"weight_map":{"a":"x"},"metadata":{"total_size":-1}}', '{"weight_map":{"a":"x"},"metadata":3}'],
)
def test_malformed_index_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX_NAME).write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(VerificationError, match=INDEX_NAME):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..", ".", "", "a\0.safetensors"]
    + ["a\\b.safetensors", "\ud800.safetensors", "config.json", "n" * 5000 + ".safetensors"],
)
def test_shard_names_that_are_not_plain_are_refused(tmp_path: Path, name: str) -> None:
    index(tmp_path, {"a": name})
    with pytest.raises(VerificationError):
        read_manifest(tmp_path)
    assert survey(tmp_path).problems


def test_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    shard(tmp_path / "out.safetensors", "a")
    (inside / "model.safetensors").symlink_to("../out.safetensors")
    with pytest.raises(VerificationError, match="leads out of the directory"):
        find_shards(inside)


def hub(repository: Path, revision: str = "abc") -> Path:
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    return snapshot


def test_hub_cache_links_into_the_blobs_of_the_same_repository_are_followed(tmp_path: Path) -> None:
    snapshot = hub(tmp_path / "models--x--y")
    shard(tmp_path / "models--x--y" / "blobs" / "0f3c", "a")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0f3c")
    assert [entry.name for entry in read_manifest(snapshot).tensors] == ["a"]


def test_hub_cache_links_into_another_repository_are_refused(tmp_path: Path) -> None:
    snapshot = hub(tmp_path / "models--x--y")
    hub(tmp_path / "models--x--z")
    shard(tmp_path / "models--x--z" / "blobs" / "0f3c", "a")
    (snapshot / "model.safetensors").symlink_to("../../../models--x--z/blobs/0f3c")
    with pytest.raises(VerificationError, match="leads out"):
        find_shards(snapshot)


def test_link_loops_and_dangling_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    (tmp_path / "other.safetensors").symlink_to("absent")
    found = survey(tmp_path)
    assert len(found.index_problems) == 2 and not found.headers


def test_index_that_is_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / INDEX_NAME)
    with pytest.raises(VerificationError, match="regular file"):
        read_index(tmp_path)


def test_numbering_without_an_index_betrays_missing_shards() -> None:
    names = ["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
    assert missing_numbers(names) == ["model-00002-of-00003.safetensors"]
    assert missing_numbers(["model.safetensors"]) == []


NAMES = st.text(max_size=12) | st.sampled_from(["x.safetensors", "../out.safetensors", "link.safetensors", "/dev/zero"])
VALUES = NAMES | st.none() | st.integers() | st.lists(st.integers(), max_size=2)


@FILES
@given(content=st.binary(max_size=200) | st.dictionaries(NAMES, VALUES, max_size=4), total=VALUES | st.floats())
def test_any_index_is_read_or_refused_without_leaving_the_directory(tmp_path: Path, content: Any, total: Any) -> None:
    inside = tmp_path / "in"
    inside.mkdir(exist_ok=True)
    shard(inside / "x.safetensors", "x")
    shard(tmp_path / "out.safetensors", "x")
    if not (inside / "link.safetensors").is_symlink():
        (inside / "link.safetensors").symlink_to("../out.safetensors")
    if isinstance(content, bytes):
        (inside / INDEX_NAME).write_bytes(content)
    else:
        index(inside, content, metadata={"total_size": total})
    found = survey(inside, allow_extra_shards=True)
    assert set(found.headers) <= {"x.safetensors"}
    try:
        assert {item.path.resolve() for item in find_shards(inside)} <= {(inside / "x.safetensors").resolve()}
    except VerificationError:
        assert found.problems


def test_resolve_inside_accepts_links_within_the_directory(tmp_path: Path) -> None:
    shard(tmp_path / "x.safetensors", "a")
    (tmp_path / "y.safetensors").symlink_to("x.safetensors")
    assert resolve_inside(tmp_path, "y.safetensors") == tmp_path / "y.safetensors"
