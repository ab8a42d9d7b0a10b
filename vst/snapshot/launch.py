"""What a launch file asks for, in one form for every format, and the five properties that a launch must have."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vst.snapshot.facts import SnapshotFacts
from vst.snapshot.image import pinned_digest
from vst.snapshot.snapshot_verify import file_digest

_ASSIGNMENT = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?:APPTAINER|SINGULARITY)ENV_)?PYTHONPATH=(\"[^\"]*\"|'[^']*'|[^\s;&|)]*)"
)


@dataclass(frozen=True)
class Mount:
    """One thing placed into a container. ``source`` is a host path, None for anything else (``kind`` says what)."""

    source: str | None
    target: str
    read_only: bool
    kind: str = "bind"


@dataclass(frozen=True)
class Launch:
    """One container of a launch file. ``ordered`` mounts hide earlier ones; ``unknown`` is what it leaves open."""

    name: str
    image: str | None
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    command: str = ""
    workdir: str | None = None
    ordered: bool = False
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What every launch is held against: the snapshot's facts, its place in the container, and what must stay out."""

    facts: SnapshotFacts
    root: str
    original: tuple[Path, ...]
    tracked: frozenset[str] = frozenset()


def violations(launch: Launch, expected: Expected) -> list[str]:
    """Every property that the launch lacks, each with its own message."""
    found = [
        *_root_mount(launch, expected),
        *original_mounts(launch, expected),
        *_strangers(launch, expected),
        *_image(launch, expected),
        *_python_path(launch, expected),
        *launch.unknown,
    ]
    return [f"{launch.name}: {message}" for message in found]


def _root_mount(launch: Launch, expected: Expected) -> list[str]:
    worktree, root = expected.facts.worktree, expected.root
    mounts = [mount for mount in launch.mounts if _target(mount) == root]
    if not mounts:
        return [f"nothing is mounted at {root}, expected the snapshot worktree {worktree} there, read-only"]
    messages = []
    for mount in mounts:
        if mount.source is None or not _same(mount.source, worktree):
            messages.append(f"{root} is mounted from {mount.source or mount.kind}, expected the worktree {worktree}")
        elif not mount.read_only:
            messages.append(f"{root} is mounted read-write, expected read-only; add ro")
    if len(mounts) > 1:
        messages.append(f"{len(mounts)} mounts land on {root}, expected one; remove the others")
    return messages


def original_mounts(launch: Launch, expected: Expected) -> list[str]:
    """Mounts that bring the original repository into the container, whole, in part or from above."""
    messages = []
    for mount in launch.mounts:
        if mount.source is None:
            continue
        if "$" in mount.source:
            messages.append(
                f"mount source {mount.source} holds a variable, so it cannot be judged; render the file first"
            )
            continue
        if not os.path.isabs(mount.source):
            messages.append(f"mount source {mount.source} depends on where it is launched; write an absolute path")
            continue
        reason = _original(Path(os.path.realpath(mount.source)), expected)
        if reason:
            messages.append(
                f"{mount.source} is mounted at {mount.target}, and {reason}; mount only the snapshot worktree"
            )
    return messages


def _original(source: Path, expected: Expected) -> str | None:
    if _same(str(source), expected.facts.worktree):
        return None
    for place in expected.original:
        top = Path(os.path.realpath(place))
        if source == top:
            return f"it is the original repository {place}"
        if source in top.parents:
            return f"it is a parent of the original repository {place}"
        if top in source.parents and _is_tracked(source.relative_to(top).as_posix(), expected):
            return f"it is part of the original repository {place}"
    return None


def _is_tracked(path: str, expected: Expected) -> bool:
    return path.split("/")[0] == ".git" or path in expected.tracked


def _strangers(launch: Launch, expected: Expected) -> list[str]:
    messages, root, hiding = [], expected.root, False
    for mount in launch.mounts:
        target = _target(mount)
        if target.startswith(root + "/"):
            messages.append(f"{mount.source or mount.kind} is mounted at {target}, below {root}; mount it elsewhere")
        above = target == "/" or root.startswith(target + "/")
        if launch.ordered and hiding and above:
            messages.append(
                f"{mount.source or mount.kind} is mounted at {target} after {root} and hides it; put it first"
            )
        hiding = hiding or target == root
    return messages


def _image(launch: Launch, expected: Expected) -> list[str]:
    recorded = expected.facts.image
    if recorded is None:
        return ["the manifest records no image digest, so the image cannot be compared; prepare with --image"]
    if not launch.image:
        return [f"no image is named, expected one pinned to {recorded}"]
    found = pinned_digest(launch.image) or _file_image(launch.image)
    if found is None:
        return [f"image {launch.image} is not pinned by digest, expected NAME@{recorded}"]
    if found != recorded:
        return [f"image {launch.image} is {found}, the manifest records {recorded}"]
    return []


def _file_image(reference: str) -> str | None:
    path = Path(reference)
    return f"sha256:{file_digest(str(path.resolve()))[0]}" if path.is_file() else None


def _python_path(launch: Launch, expected: Expected) -> list[str]:
    values = [launch.environment["PYTHONPATH"]] if "PYTHONPATH" in launch.environment else []
    values += [value.strip("\"'") for value in _ASSIGNMENT.findall(launch.command)]
    return [message for value in values if (message := _path_problem(value, launch, expected))]


def _path_problem(value: str | None, launch: Launch, expected: Expected) -> str | None:
    root = expected.root
    if value is None:
        return f"PYTHONPATH is taken from outside the file, expected {root} or nothing; write its value"
    if value == "":
        return None
    first = value.split(":")[0] or launch.workdir or "."
    place = posixpath.normpath(posixpath.join(launch.workdir or ".", first))
    if place == root or place.startswith(root + "/"):
        return None
    return f"PYTHONPATH={value} puts {first} first, expected {root}; put the snapshot first or leave it out"


def _target(mount: Mount) -> str:
    return posixpath.normpath("/" + mount.target.lstrip("/"))


def _same(path: str, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)
