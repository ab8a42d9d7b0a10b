"""Image digests come from pinned references and local files; no registry is asked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from vst.errors import ConfigError, VerificationError
from vst.snapshot import image

from .conftest import Bench, run_tool

PINNED = "sha256:" + "c" * 64


def blob(root: Path, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (root / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (root / "blobs/sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def add_manifest(root: Path, text: str) -> dict[str, Any]:
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", **blob(root, f"{{{text!r}}}".encode())}
    layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar", **blob(root, f"layer {text}".encode())}
    content = json.dumps({"schemaVersion": 2, "config": config, "layers": [layer]}).encode()
    return {"mediaType": "application/vnd.oci.image.manifest.v1+json", **blob(root, content)}


def oci_layout(root: Path, *names: str) -> list[str]:
    descriptors = []
    for name in names or ("one",):
        note = {"annotations": {"org.opencontainers.image.ref.name": name}}
        descriptors.append({**add_manifest(root, name), **note})
    (root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": descriptors}))
    return [item["digest"] for item in descriptors]


def archive(root: Path, path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        tar.add(root, arcname=".")
    return path


@pytest.mark.parametrize("prefix", ["", "docker://", "registry.example:5000/team/"])
def test_a_pinned_reference_is_its_own_digest(prefix: str) -> None:
    found = image.compute(f"{prefix}vllm:v1@{PINNED}")
    assert (found.digest, found.kind) == (PINNED, "manifest")
    assert image.compute(PINNED).kind == "config"


@pytest.mark.parametrize("text", [f"vllm@{PINNED}0", "vllm@sha256:abc", f"vllm@{PINNED}\n", "vllm:latest"])
def test_what_only_looks_like_a_digest_is_none(text: str) -> None:
    assert image.pinned_digest(text) is None


def test_an_oci_layout_and_its_archives_have_the_manifest_digest(tmp_path: Path) -> None:
    (digest,) = oci_layout(tmp_path / "layout")
    for place in (
        tmp_path / "layout",
        archive(tmp_path / "layout", tmp_path / "image.tar"),
        archive(tmp_path / "layout", tmp_path / "image.tar.gz", "w:gz"),
    ):
        found = image.compute(str(place))
        assert (found.digest, found.kind) == (digest, "manifest")


def test_of_several_images_one_must_be_named(tmp_path: Path) -> None:
    first, second = oci_layout(tmp_path / "layout", "one", "two")
    with pytest.raises(VerificationError, match=rf"holds 2 images that fit, expected one(?s:.*){second} two"):
        image.compute(str(tmp_path / "layout"))
    assert image.compute(f"{tmp_path / 'layout'}:one").digest == first
    with pytest.raises(VerificationError, match="holds 0 images that fit"):
        image.compute(f"{tmp_path / 'layout'}:three")


def test_a_damaged_or_missing_blob_is_refused(tmp_path: Path) -> None:
    oci_layout(tmp_path / "layout")
    for path in sorted((tmp_path / "layout/blobs/sha256").iterdir()):
        content = path.read_bytes()
        path.write_bytes(content + b" ")
        with pytest.raises(VerificationError, match="the image is damaged"):
            image.compute(str(tmp_path / "layout"))
        path.unlink()
        with pytest.raises(VerificationError, match="the image lacks blobs/sha256/"):
            image.compute(str(tmp_path / "layout"))
        path.write_bytes(content)
    image.compute(str(tmp_path / "layout"))


def docker_save(path: Path, *tags: str, damage: bool = False) -> list[str]:
    digests, entries = [], []
    with tarfile.open(path, "w") as tar:
        for tag in tags:
            config = json.dumps({"os": "linux", "tag": tag}).encode()
            digests.append(hashlib.sha256(config).hexdigest())
            entries.append({"Config": f"{digests[-1]}.json", "RepoTags": [f"vllm:{tag}"], "Layers": []})
            _add(tar, f"{digests[-1]}.json", config + (b" " if damage else b""))
        _add(tar, "manifest.json", json.dumps(entries).encode())
    return [f"sha256:{digest}" for digest in digests]


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def test_a_docker_save_archive_has_the_image_id(tmp_path: Path) -> None:
    path = tmp_path / "saved.tar"
    (digest,) = docker_save(path, "v1")
    assert image.compute(str(path)) == image.ImageDigest(str(path), digest, "config")
    digests = docker_save(path, "v1", "v2")
    assert image.compute(f"{path}:v2").digest == digests[1]
    docker_save(path, "v1", damage=True)
    with pytest.raises(VerificationError, match="the archive is damaged, save it again"):
        image.compute(str(path))


@pytest.mark.parametrize("content", [b"hsqs" + b"x" * 99, b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + b"y" * 99])
def test_a_squashfs_or_sif_file_is_hashed_and_called_a_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "image"
    path.write_bytes(content)
    found = image.compute(str(path))
    assert (found.digest, found.kind) == ("sha256:" + hashlib.sha256(content).hexdigest(), "file")


def test_any_other_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(VerificationError, match="neither a tar archive nor a squashfs or SIF file"):
        image.compute(str(tmp_path / "text"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(VerificationError, match="is not an image: expected an OCI layout"):
        image.compute(str(tmp_path / "folder"))


def engine(folder: Path, name: str, answer: str, code: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/asked\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_a_local_engine_is_asked_for_a_tag_and_never_pulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    engine(folder, "docker", "", 1)
    engine(folder, "podman", json.dumps({"Id": "d" * 64, "RepoDigests": [f"vllm@{PINNED}"]}))
    assert image.compute("vllm:v1") == image.ImageDigest("vllm:v1", PINNED, "manifest")
    engine(folder, "podman", json.dumps({"Id": "d" * 64, "RepoDigests": []}))
    assert image.compute("vllm:v1") == image.ImageDigest("vllm:v1", "sha256:" + "d" * 64, "config")
    engine(folder, "podman", "no such image", 1)
    with pytest.raises(ConfigError, match=r"docker and podman did not know it"):
        image.compute("vllm:v1")
    assert {line.split()[:2] == ["image", "inspect"] for line in (folder / "asked").read_text().splitlines()} == {True}


def test_without_an_engine_a_tag_is_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no docker or podman is here to ask"):
        image.compute("vllm:v1")


def test_the_program_prints_the_recorded_digest_and_compares(bench: Bench) -> None:
    (digest,) = oci_layout(bench.folder / "layout")
    bench.prepare(image=str(bench.folder / "layout"))
    done = run_tool("image-digest", "--manifest", bench.manifest)
    assert done.returncode == 0 and done.stdout == digest + "\n", os.linesep
    done = run_tool("image-digest", "--image", bench.folder / "layout")
    assert done.returncode == 0 and done.stdout == digest + "\n" and "manifest" in done.stderr
    done = run_tool("image-digest", "--manifest", bench.manifest, "--image", f"vllm@{PINNED}")
    assert done.returncode == 11 and f"is {PINNED}, the manifest records {digest}" in done.stderr
    assert run_tool("image-digest").returncode == 2


def test_the_program_refuses_when_no_image_was_recorded(bench: Bench) -> None:
    bench.prepare()
    done = run_tool("image-digest", "--manifest", bench.manifest)
    assert done.returncode == 11 and "records no image; prepare with --image" in done.stderr
