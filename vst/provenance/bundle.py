"""A run directory as it lies there: its files, its sidecars and what they state, read without believing any of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vst.errors import ConfigError
from vst.provenance.atomic import file_sha256
from vst.provenance.rundir import RUN
from vst.provenance.sidecar import SUFFIX, Subject
from vst.provenance.signing import ENVELOPE


@dataclass(frozen=True)
class Bundle:
    """The directory of one run; digests are computed once."""

    path: Path

    @staticmethod
    def at(path: Path) -> Bundle:
        """The bundle at ``path``; ConfigError when that is no directory of a run."""
        if not path.is_dir():
            raise ConfigError(f"{path} is not a directory")
        bundle = Bundle(path)
        if RUN not in bundle.files and not bundle.sidecars:
            raise ConfigError(f"{path} is not a run directory: it holds neither {RUN} nor a sidecar")
        return bundle

    @cached_property
    def files(self) -> dict[str, Path]:
        """Everything that is not a directory, by name; links, sockets and the like are files that nobody wrote."""
        paths = (path for path in self.path.rglob("*") if path.is_symlink() or not path.is_dir())
        return {str(path.relative_to(self.path)): path for path in sorted(paths)}

    @cached_property
    def sidecars(self) -> list[str]:
        """The names of the files that have a sidecar, whether they are there or not."""
        return [name.removesuffix(SUFFIX) for name in self.files if name.endswith(SUFFIX)]

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {}

    def regular(self, name: str) -> bool:
        path = self.files.get(name)
        return path is not None and path.is_file() and not path.is_symlink()

    def sha256(self, name: str) -> str:
        if name not in self._digests:
            self._digests[name] = file_sha256(self.path / name)
        return self._digests[name]

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes() if self.regular(name) else b""

    def json(self, name: str) -> Mapping[str, Any] | None:
        """The object in a JSON file; None when it is not there or is not one."""
        try:
            content = json.loads(self.read(name))
        except ValueError:
            return None
        return content if isinstance(content, Mapping) else None

    def subject(self, name: str) -> Subject | None:
        """What the sidecar of ``name`` states about it; None when there is no such sidecar or it is damaged."""
        content = self.json(name + SUFFIX) or {}
        try:
            (one,) = content["subject"]
            notes = one["annotations"]
            return Subject(
                str(one["name"]),
                str(one["digest"]["sha256"]),
                int(notes["bytes"]),
                notes.get("replaces"),
                notes.get("grows") is True,
                tuple((str(one["name"]), str(one["digest"]["sha256"])) for one in notes.get("derived_from", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def predicate(self, name: str) -> Mapping[str, Any] | None:
        found = (self.json(name + SUFFIX) or {}).get("predicate")
        return found if isinstance(found, Mapping) else None


def expected_names(listed: list[str], signed: bool) -> set[str]:
    """All names that a complete run directory consists of."""
    own = {RUN, RUN + SUFFIX, *([ENVELOPE] if signed else [])}
    return {*listed, *(name + SUFFIX for name in listed), *own}
