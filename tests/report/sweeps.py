"""Sweeps for pages: real files of as many runs as a test wants, without running any."""

from __future__ import annotations

import json
from pathlib import Path

from vst.cluster.outcome import Ending
from vst.cluster.sweep import Run, Sweep

CODES = {"fail": 10, "inconclusive": 12, "": 0}


def write_sweep(
    root: Path, checkpoints: list[str], lanes: list[str], reason: str = "transition.to_b: no effect"
) -> Sweep:
    """Every checkpoint in every lane; each ninth run fails and each tenth decides nothing."""
    root.mkdir(parents=True)
    runs = []
    for number, (checkpoint, lane) in enumerate((c, lane) for c in checkpoints for lane in lanes):
        cause = "fail" if number % 9 == 8 else "inconclusive" if number % 10 == 9 else ""
        place = root / str(number)
        place.mkdir()
        seconds, apart = 50.0 + number % 7, 1e-4 * (number % 5)
        check = {"id": "transition.to_b", "outcome": cause or "pass", "observed": [{"largest_difference": apart}]}
        verdict = {"noise_floor": 1e-4, "covered": {"byte_share": 1.0}, "lanes": [{"lane": lane, "checks": [check]}]}
        (place / "verdict.json").write_text(json.dumps(verdict))
        word = "FAIL_CLOSED" if cause else "PASS"
        ended = {"state": "complete", "seconds": seconds, "verdict": word, "exit_code": CODES[cause]}
        (place / "run.json").write_text(json.dumps(ended))
        if number % 2:
            (place / "report.html").write_text("a page")
        ending = Ending(word, CODES[cause], reason if cause else "", cause or None, 1, "serving", str(place))
        words = [f"checkpoint={checkpoint}", f"lane={lane}", "model=modela"]
        runs.append(Run(number, words, str(number), "", "sha256:0", state="ended", ending=ending))
    sweep = Sweep(root, "slurm", ["vst", "-m"], runs)
    sweep.write()
    return sweep
