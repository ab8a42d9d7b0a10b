from __future__ import annotations

from pathlib import Path

import pytest

from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.storage import Mount, mount_of, read_mounts, shards_by_mount
from vst.checkpoint.writer import write_safetensors

TABLE = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
26 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
30 26 0:40 / /nfs/my\040models rw - nfs4 10.0.0.1:/export rw,vers=4.2
31 26 0:41 / /nfs rw - lustre mgs@o2ib:/scratch rw
broken line
32 26 0:42 / /nfs rw shared:3 - tmpfs tmpfs rw
"""


def test_mount_table_is_read_with_escapes_and_optional_fields(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(TABLE)
    mounts = read_mounts(tmp_path / "mountinfo")
    assert mounts[2] == Mount("/nfs/my models", "nfs4", "10.0.0.1:/export") and len(mounts) == 5
    assert read_mounts(tmp_path / "absent") == []


def test_longest_and_latest_mount_point_wins(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(TABLE)
    mounts = read_mounts(tmp_path / "mountinfo")
    expected = {"/nfs/my models/x": "nfs4", "/nfs/other": "tmpfs", "/nfsx": "ext4", "/nfs": "tmpfs", "/": "ext4"}
    for path, fstype in expected.items():
        found = mount_of(path, mounts)
        assert found is not None and found.fstype == fstype
    assert mount_of("/x", []) is None


@pytest.mark.parametrize("fstype", ["nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs"])
@pytest.mark.parametrize("more", ["fuse", "fuse.juicefs", "9p", "afs", "wekafs", "glusterfs", "orangefs"])
def test_network_file_systems_are_known(fstype: str, more: str) -> None:
    assert Mount("/", fstype, "").is_network and Mount("/", more, "").is_network


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk", "f2fs"])
def test_local_file_systems_are_known(fstype: str) -> None:
    assert not Mount("/", fstype, "").is_network


def test_links_are_judged_by_where_the_data_is(tmp_path: Path) -> None:
    repository = tmp_path / "models--x--y"
    snapshot = repository / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    write_safetensors(repository / "blobs" / "0", {"a": ("U8", (1,), b"x")})
    (snapshot / "model.safetensors").symlink_to("../../blobs/0")
    network = Mount(str((repository / "blobs").resolve()), "nfs", "server:/")
    found = shards_by_mount(read_manifest(snapshot), [Mount("/", "ext4", "x"), network])
    assert found == {network: ["model.safetensors"]}


def test_this_machine_has_a_mount_table(tmp_path: Path) -> None:
    assert mount_of(str(tmp_path.resolve()), read_mounts()) is not None
