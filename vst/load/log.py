"""The log of a load, read back: what was to be asked, every answer, and the marks of the lane."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vst.errors import VerificationError
from vst.load.generator import FORMAT
from vst.load.seen import Seen
from vst.load.workload import Workload


@dataclass(frozen=True)
class LoadLog:
    """What one load left; ``sent`` is None when its end was never written."""

    workload: Workload
    answers: tuple[Seen, ...]
    marks: tuple[Mapping[str, Any], ...]
    begun: float
    sent: int | None
    held_back: int

    def lost(self) -> list[int]:
        """Numbers of requests that were sent and of which the log says nothing."""
        seen = {one.number for one in self.answers}
        return [number for number in range(self.sent or 0) if number not in seen]

    def doubled(self) -> list[int]:
        """Numbers of requests that the log answers more than once, or that were never sent."""
        counted = Counter(one.number for one in self.answers)
        return sorted(n for n, count in counted.items() if count > 1 or not 0 <= n < (self.sent or 0))


def read_log(data: bytes) -> LoadLog:
    """Read a load's JSON lines; VerificationError when they are not those of one load."""
    try:
        lines = [json.loads(line) for line in data.decode().splitlines()]
        head = lines[0]
        if head["kind"] != "load" or head["format"] != FORMAT:
            raise VerificationError(f"not the log of a load: it begins with {str(head)[:80]}, expected {FORMAT!r}")
        end = next((line for line in lines if line["kind"] == "end"), None)
        return LoadLog(
            workload=Workload.from_json(head["workload"]),
            answers=tuple(Seen.from_json(line) for line in lines if line["kind"] == "answer"),
            marks=tuple(line for line in lines if line["kind"] == "mark"),
            begun=float(head["at"]),
            sent=None if end is None else int(end["sent"]),
            held_back=0 if end is None else int(end["held_back"]),
        )
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise VerificationError(f"damaged log of a load: {type(error).__name__}: {error}") from error
