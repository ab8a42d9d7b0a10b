"""The tiny pair of checkpoints, as manifests and as the files that a publisher reads."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.checkpoint.tiny import make_tiny_pair


@dataclass(frozen=True)
class Pair:
    """Both tiny checkpoints with their digests, as manifests and as the files that a publisher reads."""

    manifests: dict[str, Manifest]
    files: dict[str, str]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    paths = dict(zip("ab", make_tiny_pair(folder), strict=True))
    manifests = {name: with_digests(read_manifest(path), None) for name, path in paths.items()}
    files = {}
    for name, manifest in manifests.items():
        (folder / f"{name}.json").write_text(json.dumps(manifest.to_json()))
        files[name] = str(folder / f"{name}.json")
    return Pair(manifests, files)
