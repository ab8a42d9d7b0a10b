"""``render-check``: the shell script for a mounted snapshot, and the judgement of a rendered launch file."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vst.errors import ConfigError, VerificationError
from vst.snapshot.batch_script import script_launches
from vst.snapshot.compose import compose_launches
from vst.snapshot.facts import as_vst_errors, facts_of, read_manifest
from vst.snapshot.kubernetes import kubernetes_launches
from vst.snapshot.launch import Expected, Launch, original_mounts, violations
from vst.snapshot.script import render
from vst.snapshot.snapshot_verify import Entry, Manifest, Report, artifact_problems, bytes_named, read_entries


def render_check(manifest_path: Path, source_root: str, spec: Path | None, only: Sequence[str] = ()) -> bytes:
    """The script; with ``spec`` only after every launch in it (or those named in ``only``) has the five properties."""
    root = _root(source_root)
    manifest = read_manifest(manifest_path)
    with as_vst_errors():
        Report(0, tuple(artifact_problems(manifest))).require("the result directory")
        entries = read_entries(manifest.artifact("tree") or "")
    if spec is not None:
        check_spec(spec, _expected(manifest, entries, root), only)
    return render(manifest, entries, os.fsencode(root))


def _root(source_root: str) -> str:
    root = posixpath.normpath(source_root)
    if not root.startswith("/") or root.strip("/") == "":
        raise ConfigError(
            f"--source-root {source_root} must be the absolute path of the snapshot in the container, below /"
        )
    return "/" + root.lstrip("/")


def _expected(manifest: Manifest, entries: list[Entry], root: str) -> Expected:
    facts = facts_of(manifest)
    shared = Path(os.fsdecode(bytes_named(manifest.data["repository"], "common_dir") or b""))
    original = (facts.repository, shared.parent if shared.name == ".git" else shared)
    tracked = {os.fsdecode(entry.path) for entry in entries}
    tracked |= {parent for path in list(tracked) for parent in _parents(path)}
    return Expected(facts, root, tuple(dict.fromkeys(original)), frozenset(tracked))


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def check_spec(spec: Path, expected: Expected, only: Sequence[str] = ()) -> None:
    """VerificationError with every violation of a launch file; ConfigError when it is none that is known."""
    launches = read_launches(spec)
    chosen = [launch for launch in launches if not only or launch.name.split()[-1] in only]
    if not chosen:
        names = ", ".join(launch.name for launch in launches)
        raise ConfigError(f"no container of {spec} is called {' or '.join(only)}; it has {names}")
    found = [message for launch in chosen for message in violations(launch, expected)]
    others = [launch for launch in launches if launch not in chosen]
    found += [f"{launch.name}: {message}" for launch in others for message in original_mounts(launch, expected)]
    if found:
        lines = "".join(f"\n  {message}" for message in found)
        raise VerificationError(
            f"{spec} does not launch snapshot {expected.facts.id}: {len(found)} violation(s){lines}"
        )


def read_launches(spec: Path) -> list[Launch]:
    """The launches of a Compose file, Kubernetes objects or a script, told apart by content."""
    try:
        text = spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the launch file {spec}: {error}") from error
    folder = spec.absolute().parent
    documents = [] if text.startswith("#!") or "#SBATCH" in text else _yaml_documents(text)
    if documents and all(isinstance(document.get("kind"), str) for document in documents):
        return kubernetes_launches(documents)
    if len(documents) == 1 and "services" in documents[0]:
        return compose_launches(documents[0], folder)
    if documents:
        raise ConfigError(f"{spec} is YAML but neither a Compose file (services:) nor Kubernetes objects (kind:)")
    return script_launches(text, folder)


def _yaml_documents(text: str) -> list[Mapping[str, Any]]:
    """The mappings of a YAML stream; empty when the text is something else (a script)."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError:
        return []
    return documents if all(isinstance(document, dict) for document in documents) else []
