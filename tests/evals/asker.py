"""Asks a server as its own process, so that it can be killed: ``asker.py URL FILE COUNT CONCURRENCY [RESUMED]``."""

from __future__ import annotations

import sys
from pathlib import Path

from evals.plans import endpoint, header, make_plan
from vst.evals.asking import evaluate
from vst.evals.store import read_evaluation


def main() -> None:
    url, path, count, concurrency = sys.argv[1:5]
    plan = make_plan(int(count), concurrency=int(concurrency))
    resumed = read_evaluation(Path(sys.argv[5])) if len(sys.argv) > 5 else None
    evaluate(plan, endpoint(url), Path(path), header(plan), resumed)


if __name__ == "__main__":
    main()
