"""One checkpoint under audit: what was read of it, once, for all checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vst.checkpoint.digests import DigestCache, with_digests
from vst.checkpoint.hashing import Progress
from vst.checkpoint.manifest import Manifest, manifest_of
from vst.checkpoint.survey import Survey, survey
from vst.errors import VerificationError


@dataclass
class Subject:
    """A role (``model`` or ``checkpoint``), its survey, and its manifest if the files could be read.

    ``unreadable`` are the problems of reading whole files, after the headers had been found good.
    """

    role: str
    survey: Survey
    manifest: Manifest | None = None
    unreadable: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"{self.role} {self.survey.directory}"

    @property
    def format_problems(self) -> list[str]:
        return self.survey.format_problems + self.unreadable


def inspect(role: str, directory: Path, allow_extra_shards: bool) -> Subject:
    """Reads headers, index and small files of one checkpoint; problems are kept in the subject."""
    subject = Subject(role, survey(directory, allow_extra_shards))
    if not subject.survey.problems:
        try:
            subject.manifest = manifest_of(subject.survey)
        except VerificationError as error:
            subject.unreadable.append(str(error))
    return subject


def digest(subject: Subject, cache: DigestCache | None, progress: Progress | None, shard_digests: bool) -> None:
    """Replaces the manifest by one with digests, of the shards only if asked for; reads all bytes of the checkpoint."""
    if subject.manifest is None:
        return
    try:
        subject.manifest = with_digests(subject.manifest, cache, progress=progress, shard_digests=shard_digests)
    except VerificationError as error:
        subject.unreadable.append(str(error))
