"""A run that waits: its ``lane=compare`` reads a named pipe, so that waiting costs nothing and can be ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from vst.oracle.record import Answer, Record


class Gate:
    """``words`` are the overrides of a run that blocks in its lane until ``open`` lets it end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.pipe, self._right = folder / "left.json", folder / "right.json"
        os.mkfifo(self.pipe)
        answer = Answer((1, 2), (-1.0,), (3,), (-0.5,), (((3, -0.5),),), 0)
        self._content = {**Record("A", "sha256:0", (answer,)).to_json(), "noise_floor": 0.0}
        self._right.write_text(json.dumps(self._content))

    @property
    def words(self) -> tuple[str, ...]:
        return ("lane=compare", f"lane.left={self.pipe}", f"lane.right={self._right}")

    def open(self, equal: bool = True, seconds: float = 30.0) -> None:
        """Let one waiting run go on, to PASS or, with a record that is not equal, to FAIL_CLOSED with code 10."""
        content = json.loads(json.dumps(self._content))
        if not equal:
            content["answers"][0]["output"] = [4]
        end = time.monotonic() + seconds
        while True:
            try:
                writer = os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        os.write(writer, json.dumps(content).encode())
        os.close(writer)
