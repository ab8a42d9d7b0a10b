"""The digest of a container image: read from a pinned reference, computed from files, or asked of a local engine.

``kind`` says what the digest covers: ``manifest`` is what ``name@sha256:...`` pins, ``config`` is an engine's image
id, ``file`` is the SHA-256 of one squashfs or SIF file. No registry is ever contacted.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import ConfigError, VerificationError
from vst.snapshot.image_archive import ArchiveImage, DirectoryImage, ImageFiles
from vst.snapshot.snapshot_verify import file_digest

ENGINE_TIMEOUT_S = 60
ENGINES = ("docker", "podman")

_PINNED = re.compile(r"(?:\S*@)?(?P<digest>sha256:[0-9a-f]{64})")
_NAME_NOTES = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
_SQUASHFS = (b"hsqs", b"sqsh")
_SIF_MAGIC, _SIF_OFFSET = b"SIF_MAGIC", 32


@dataclass(frozen=True)
class ImageDigest:
    """An image as it was named and the digest that pins it."""

    reference: str
    digest: str
    kind: str

    def to_json(self) -> dict[str, str]:
        return {"reference": self.reference, "digest": self.digest, "kind": self.kind}


def pinned_digest(reference: str) -> str | None:
    """The digest inside a reference such as ``name@sha256:...`` or ``docker://name@sha256:...``, None without one."""
    match = _PINNED.fullmatch(reference)
    return match["digest"] if match else None


def compute(reference: str) -> ImageDigest:
    """The digest of a reference, an OCI layout directory, an archive, or a squashfs or SIF file."""
    pinned = pinned_digest(reference)
    if pinned:
        return ImageDigest(reference, pinned, "manifest" if "@" in reference else "config")
    path, _, tag = reference.partition(":")
    for place, wanted in ((Path(reference), None), (Path(path), tag or None)):
        if place.is_dir():
            return _from_parts(reference, DirectoryImage(place), wanted)
        if place.is_file():
            return _from_file(reference, place, wanted)
    return _from_engine(reference)


def _from_file(reference: str, path: Path, tag: str | None) -> ImageDigest:
    with open(path, "rb") as handle:
        head = handle.read(_SIF_OFFSET + len(_SIF_MAGIC))
    if head[:4] in _SQUASHFS or head[_SIF_OFFSET:] == _SIF_MAGIC:
        return ImageDigest(reference, f"sha256:{file_digest(str(path.resolve()))[0]}", "file")
    with ArchiveImage(path) as files:
        return _from_parts(reference, files, tag)


def _from_parts(reference: str, files: ImageFiles, tag: str | None) -> ImageDigest:
    if files.has("index.json"):
        descriptor = _choose(_json(files, "index.json").get("manifests", []), reference, tag)
        _check_blob(files, descriptor)
        return ImageDigest(reference, descriptor["digest"], "manifest")
    if files.has("manifest.json"):
        return _from_saved(reference, files, tag)
    raise VerificationError(
        f"{reference} is not an image: expected an OCI layout (index.json), a `docker save` archive (manifest.json), "
        "or a squashfs or SIF file"
    )


def _choose(manifests: list[dict[str, Any]], reference: str, tag: str | None) -> dict[str, Any]:
    names = {item["digest"]: _names(item) for item in manifests}
    fitting = [item for item in manifests if tag is None or tag in names[item["digest"]]]
    if len({item["digest"] for item in fitting}) == 1:
        return fitting[0]
    offered = "".join(f"\n  {digest} {' '.join(sorted(name))}" for digest, name in names.items())
    raise VerificationError(
        f"{reference} holds {len(fitting)} images that fit, expected one; add the name of one as PATH:NAME{offered}"
    )


def _names(descriptor: dict[str, Any]) -> set[str]:
    notes = descriptor.get("annotations") or {}
    full = {str(notes[key]) for key in _NAME_NOTES if notes.get(key)}
    return full | {name.rpartition(":")[2] for name in full}


def _check_blob(files: ImageFiles, descriptor: dict[str, Any]) -> None:
    """Hash a blob, and what its manifest or index refers to; what an index lists for other platforms may be absent."""
    algorithm, _, expected = descriptor["digest"].partition(":")
    name = f"blobs/{algorithm}/{expected}"
    if algorithm != "sha256" or not files.has(name):
        raise VerificationError(f"the image lacks {name}, which it refers to; export it again")
    if (found := files.sha256(name)) != expected:
        raise VerificationError(f"{name} of the image has sha256 {found}; the image is damaged, export it again")
    if "manifest" not in descriptor.get("mediaType", "") and "index" not in descriptor.get("mediaType", ""):
        return
    document = _json(files, name)
    inner = [item for item in document.get("manifests", []) if files.has(f"blobs/{item['digest'].replace(':', '/')}")]
    parts = [document["config"]] if "config" in document else []
    for item in [*inner, *parts, *document.get("layers", [])]:
        _check_blob(files, item)


def _from_saved(reference: str, files: ImageFiles, tag: str | None) -> ImageDigest:
    images = [item for item in _json(files, "manifest.json") if tag is None or _tagged(item, tag)]
    if len(images) != 1:
        raise VerificationError(
            f"{reference} holds {len(images)} images that fit, expected one; add PATH:TAG or save one"
        )
    config = images[0]["Config"]
    found = files.sha256(config)
    expected = Path(config).name.removesuffix(".json")
    if found != expected:
        raise VerificationError(f"{config} of {reference} has sha256 {found}; the archive is damaged, save it again")
    return ImageDigest(reference, f"sha256:{found}", "config")


def _tagged(image: dict[str, Any], tag: str) -> bool:
    return any(name == tag or name.endswith(f":{tag}") for name in image.get("RepoTags") or [])


def _json(files: ImageFiles, name: str) -> Any:
    try:
        return json.loads(files.read(name))
    except ValueError as error:
        raise VerificationError(f"{name} of the image is not JSON ({error}); export the image again") from error


def _from_engine(reference: str) -> ImageDigest:
    tried = []
    for engine in ENGINES:
        if shutil.which(engine) is None:
            continue
        tried.append(engine)
        found = _inspect(engine, reference)
        if found:
            return found
    asked = f"{' and '.join(tried)} did not know it" if tried else "no docker or podman is here to ask"
    raise ConfigError(
        f"image {reference!r} is not pinned by digest and is no file; {asked}. Give NAME@sha256:..., an OCI layout "
        "directory, an archive, or a squashfs or SIF file (no registry is contacted)"
    )


def _inspect(engine: str, reference: str) -> ImageDigest | None:
    command = [engine, "image", "inspect", "--format", "{{json .}}", reference]
    try:
        done = subprocess.run(command, capture_output=True, timeout=ENGINE_TIMEOUT_S, check=False)
        facts = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    pinned = sorted(filter(None, (pinned_digest(item) for item in facts.get("RepoDigests") or [])))
    if len(set(pinned)) == 1:
        return ImageDigest(reference, pinned[0], "manifest")
    identity = str(facts.get("Id", ""))
    digest = identity if identity.startswith("sha256:") else f"sha256:{identity}"
    return ImageDigest(reference, digest, "config") if identity else None
