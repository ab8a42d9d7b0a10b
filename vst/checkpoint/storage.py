"""Check ``files.storage``: on which file system the shards lie, from the kernel's mount table."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vst.checkpoint.manifest import Manifest

MOUNT_TABLE = Path("/proc/self/mountinfo")
# fmt: off
NETWORK_TYPES = frozenset((
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "cvmfs", "davfs", "dvs", "exfs", "gfs", "gfs2",
    "glusterfs", "gpfs", "ibrix", "lustre", "mapr", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs",
    "prl_fs", "pvfs2", "quobyte", "smb", "smb2", "smb3", "smbfs", "stornext", "vmhgfs", "vxfs", "wekafs",
))
# fmt: on
OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: where, of which type, and from what."""

    point: str
    fstype: str
    source: str

    @property
    def is_network(self) -> bool:
        """Network and FUSE file systems; ``fuseblk`` is a local disk."""
        return self.fstype in NETWORK_TYPES or self.fstype == "fuse" or self.fstype.startswith("fuse.")


def read_mounts(table: Path = MOUNT_TABLE) -> list[Mount]:
    """The mount table in mount order; empty where the kernel has none.

    Source: proc_pid_mountinfo(5); fields before `` - `` vary in number, type and source follow it.
    """
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError:
        return []
    return [mount for line in lines if (mount := _mount(line))]


def _mount(line: str) -> Mount | None:
    before, separator, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not separator or len(left) < 5 or len(right) < 2:
        return None
    return Mount(_unescape(left[4]), right[0], _unescape(right[1]))


def _unescape(text: str) -> str:
    return OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that the resolved ``path`` lies on: the longest mount point above it, the latest of equal ones."""
    above = [mount for mount in mounts if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")]
    return max(enumerate(above), key=lambda item: (len(item[1].point), item[0]))[1] if above else None


def shards_by_mount(manifest: Manifest, mounts: Sequence[Mount]) -> dict[Mount | None, list[str]]:
    """The names of the shards by the file system that their data, links resolved, lies on."""
    by_directory: dict[str, Mount | None] = {}
    found: dict[Mount | None, list[str]] = {}
    for shard in manifest.shards:
        path = os.path.realpath(manifest.shard_path(shard.name))
        directory = os.path.dirname(path)
        if directory not in by_directory:
            by_directory[directory] = mount_of(directory, mounts)
        # A single file can be a mount of its own (bind mounts in containers).
        own = next((mount for mount in reversed(mounts) if mount.point == path), None)
        found.setdefault(own or by_directory[directory], []).append(shard.name)
    return found
