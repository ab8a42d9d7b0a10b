"""A log of its own in a run directory: JSON lines that grow while the run goes on, written from any thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vst.provenance.atomic import StorageFailure
from vst.provenance.encoding import utc_now
from vst.provenance.eventlog import EventLog
from vst.provenance.redaction import Scrubber


class Journal:
    """Append-only, each line sealed as those of the events are; what a line holds is scrubbed first."""

    def __init__(self, path: Path, scrubber: Scrubber) -> None:
        self.path = path
        self._scrubber = scrubber
        try:
            self._log = EventLog(path)
        except OSError as error:
            raise StorageFailure(f"{path} cannot be written: {error.strerror}") from error

    def append(self, kind: str, **fields: Any) -> None:
        """One line with the wall clock and ``kind``; StorageFailure when it does not fit, with nothing of it left."""
        content = self._scrubber.tree({"utc": utc_now(), "kind": kind, **fields})
        try:
            self._log.append(json.dumps(content))
        except OSError as error:
            raise StorageFailure(f"{self.path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Flush to the disk and close; safe to repeat. What is appended later is refused."""
        try:
            self._log.close()
        except OSError as error:
            raise StorageFailure(f"{self.path} cannot be written: {error.strerror}") from error
