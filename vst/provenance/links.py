"""What a run rests on: the verified source snapshot, the reference of B, the run before it — each by digest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vst
from vst.errors import ConfigError, VerificationError
from vst.provenance.atomic import file_sha256
from vst.provenance.block import Block
from vst.provenance.rundir import RUN, RunDir
from vst.provenance.sidecar import SUFFIX
from vst.snapshot import snapshot_verify
from vst.snapshot.facts import as_vst_errors, load_and_verify, read_manifest

REFERENCE = "record-reference.json"


def snapshot_facts(manifest: str, root: str | None, imports: Sequence[str]) -> dict[str, Any]:
    """Verify a snapshot and the modules that must come from it, and say what it is.

    ``root`` is where its tree is mounted (no git is needed then), ``imports`` are ``MODULE=PATH`` below it.
    VerificationError lists what does not hold, ConfigError says that the manifest cannot be read.
    """
    path = Path(manifest).expanduser().absolute()
    mounted = Path(root).expanduser().absolute() if root else None
    found = load_and_verify(path, mounted)
    place = mounted or found.worktree
    listing = read_manifest(path).artifact("tree") if imports else None
    with as_vst_errors():
        known = [entry.path for entry in snapshot_verify.read_entries(listing)] if listing else []
        problems = [text for one in imports for text in snapshot_verify.import_problems(one, str(place), known)]
    if problems:
        raise VerificationError(f"snapshot {found.id}: " + "; ".join(problems))
    block = Block().put("id", found.id).put("commit", found.commit).put("tree", found.tree).put("ref", found.ref)
    block.put("manifest", str(path)).put("sha256", found.manifest_digest.removeprefix("sha256:"))
    block.put("image", found.image, "the snapshot was prepared without an image")
    block.put("root", str(place)).put("imports", list(imports))
    return block.put("runs_vst", Path(vst.__file__).resolve().is_relative_to(place.resolve())).to_json()


def use_reference(run: RunDir, record: Any, origin: Path | None) -> None:
    """Keep the record of B that the run is judged by in its own directory, and note where it came from."""
    path = run.write(REFERENCE, record) if record is not None else run / REFERENCE
    block = Block().put("name", REFERENCE).put("sha256", file_sha256(path))
    block.put("origin", str(origin) if origin else None, "taken by this run from a cold server")
    digest = file_sha256(origin) if origin else None
    run.evidence.reference = block.put("origin_sha256", digest, "taken by this run from a cold server").to_json()


def previous_run(path: str) -> dict[str, str]:
    """The run that this one follows, by the digests of its ``run.json`` and sidecar; ConfigError when it is none."""
    directory = Path(path).expanduser().absolute()
    try:
        return {
            "path": str(directory),
            "sha256": file_sha256(directory / RUN),
            "sidecar_sha256": file_sha256(directory / (RUN + SUFFIX)),
        }
    except OSError as error:
        raise ConfigError(f"provenance.previous={path} is not the directory of a run: {error}") from error
