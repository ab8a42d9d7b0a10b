"""``python alone.py OVERRIDE…`` is ``python -m vst`` with a ladder of L0, L1 and L6.

The rungs between have tests of their own, and take longer than this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUNGS = ("L0", "L1", "L6")
SHORT = (
    "endurance.cycles=3",
    "endurance.answers=2",
    "load.prompts=3",
    "load.rounds=2",
    "load.output_tokens=8",
    # So few cycles tell a leak from an allocator only where it is large.
    "endurance.memory_least_bytes=100000000",
)


@dataclass(frozen=True)
class Climbed:
    """One finished run: its exit code, what it printed, where it is."""

    code: int
    out: str
    dir: Path

    def check(self, id: str) -> dict[str, Any]:
        verdict = json.loads((self.dir / "verdict.json").read_text())
        found = [one for lane in verdict["lanes"] for one in lane["checks"] if one["id"] == id]
        assert found, f"{id} is not in the verdict: {self.out}"
        return dict(found[-1])

    def written(self, name: str) -> Any:
        return json.loads((self.dir / name).read_text())

    def judged_again(self) -> str:
        """What verification with a second judgement says; it must hold."""
        command = [sys.executable, "-m", "vst.provenance", "verify", str(self.dir), "--rerun-checks"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def climb(cache: Path, out: Path, *overrides: str, timeout: float = 900) -> Climbed:
    """Run the lane alone; ``cache`` is shared by the runs of a session."""
    where = (f"paths.cache='{cache}'", f"hydra.run.dir='{out}'", "lane=L6", *SHORT)
    command = [sys.executable, __file__, *where, *overrides]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=os.environ, check=False)
    return Climbed(done.returncode, done.stdout + done.stderr, out)


if __name__ == "__main__":
    from vst import app
    from vst.lanes import ladder

    ladder.LANES = RUNGS  # type: ignore[misc]
    sys.exit(app.main())
