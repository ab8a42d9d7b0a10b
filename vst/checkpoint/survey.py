"""Looking at the shards of one directory: every problem that headers and index show, not only the first."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from vst.checkpoint.collector import collector_paused
from vst.checkpoint.header import Header, read_header
from vst.checkpoint.index import (
    INDEX_NAME,
    Index,
    Shard,
    missing_numbers,
    read_index,
    resolve_shard,
    shards_on_disk,
)
from vst.errors import VerificationError


@dataclass
class Survey:
    """The headers of one checkpoint by shard name, and what is wrong with them.

    ``format_problems`` concern single files, ``index_problems`` how index, shards and headers fit together.
    """

    directory: Path
    index: Index | None = None
    headers: dict[str, Header] = field(default_factory=dict)
    format_problems: list[str] = field(default_factory=list)
    index_problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return self.format_problems + self.index_problems

    @property
    def tensor_count(self) -> int:
        return sum(len(header.tensors) for header in self.headers.values())


@collector_paused()
def survey(directory: Path, allow_extra_shards: bool = False) -> Survey:
    """Reads the index and every header of ``directory``; reads no tensor data and raises for no bad checkpoint."""
    found = Survey(directory)
    try:
        on_disk = shards_on_disk(directory)
        found.index = read_index(directory)
    except VerificationError as error:
        found.index_problems.append(str(error))
        return found
    for shard in _shards(found, on_disk, allow_extra_shards):
        try:
            found.headers[shard.name] = read_header(shard.path)
        except VerificationError as error:
            found.format_problems.append(str(error))
    if not found.problems:
        _compare_tensors(found)
    return found


def _shards(found: Survey, on_disk: list[str], allow_extra: bool) -> list[Shard]:
    names = found.index.shard_names if found.index else on_disk
    if found.index:
        _note_extra(found, sorted(set(on_disk) - set(names)), allow_extra)
    else:
        for name in missing_numbers(on_disk):
            found.index_problems.append(f"{found.directory}: shard {name!r} is missing, and so is {INDEX_NAME}")
    if not names:
        found.index_problems.append(f"{found.directory}: no .safetensors file and no {INDEX_NAME}")
    return [shard for name in names if (shard := _shard(found, name))]


def _note_extra(found: Survey, extra: list[str], allow_extra: bool) -> None:
    messages = [f"{found.directory}: shard {name!r} is on disk but {INDEX_NAME} does not name it" for name in extra]
    (found.warnings if allow_extra else found.index_problems).extend(messages)


def _shard(found: Survey, name: str) -> Shard | None:
    try:
        path = resolve_shard(found.directory, name)
    except VerificationError as error:
        found.index_problems.append(str(error))
        return None
    if not os.path.exists(path):
        found.index_problems.append(f"{found.directory}: shard {name!r} is not on disk{_named_by(found, name)}")
        return None
    return Shard(name, path)


def _named_by(found: Survey, name: str) -> str:
    if found.index is None:
        return ""
    count = sum(shard == name for shard in found.index.weight_map.values())
    return f", {INDEX_NAME} names it for {count} tensors"


def _compare_tensors(found: Survey) -> None:
    weight_map = found.index.weight_map if found.index else None
    located: dict[str, str] = {}
    for shard, header in found.headers.items():
        for tensor in header.tensors:
            name = tensor.name
            if name in located:
                twice = f"tensor {name!r} is in two shards, {located[name]!r} and {shard!r}"
                found.index_problems.append(f"{found.directory}: {twice}")
            elif weight_map is not None and weight_map.get(name) != shard:
                found.index_problems.append(f"{found.directory}: {_misplaced(name, shard, weight_map)}")
            located.setdefault(name, shard)
    if found.index:
        _compare_index(found, found.index, located)


def _misplaced(name: str, shard: str, weight_map: dict[str, str]) -> str:
    if name in weight_map:
        return f"tensor {name!r} is in shard {shard!r}, {INDEX_NAME} says {weight_map[name]!r}"
    return f"tensor {name!r} is in shard {shard!r} but {INDEX_NAME} does not name it"


def _compare_index(found: Survey, index: Index, located: dict[str, str]) -> None:
    absent = index.weight_map.keys() - located.keys()
    for name in sorted(absent):
        claim = f"tensor {name!r} is named by {INDEX_NAME} in shard {index.weight_map[name]!r}"
        found.index_problems.append(f"{found.directory}: {claim}, which does not hold it")
    total = sum(tensor.nbytes for header in found.headers.values() for tensor in header.tensors)
    if index.total_size is not None and index.total_size != total:
        found.index_problems.append(
            f"{found.directory}: metadata.total_size is {index.total_size}, the tensors have {total} bytes"
        )
