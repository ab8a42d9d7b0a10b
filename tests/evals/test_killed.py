"""An evaluation that is killed at a random point and started again ends with the records of an undisturbed one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from evals.completions import Completions
from evals.plans import endpoint, header, make_plan
from vst.evals.asking import evaluate
from vst.evals.compare import compare
from vst.evals.store import Evaluation, read_evaluation

COUNT, CONCURRENCY = 120, 4
TESTS = Path(__file__).parent.parent


def start(url: str, path: Path, *resumed: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, str(TESTS / "evals" / "asker.py"), url, str(path), str(COUNT), str(CONCURRENCY), *resumed]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    return subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_after(child: subprocess.Popen[bytes], server: Completions, requests: int) -> None:
    """Kill it when so many requests have arrived."""
    until = time.monotonic() + 60
    while len(server.seen) < requests and child.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.001)
    child.kill()
    child.communicate()


@pytest.mark.parametrize("seed", range(2))
def test_killed_twice_at_random_points_it_ends_with_the_same_records(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    plan = make_plan(COUNT, concurrency=CONCURRENCY)
    with Completions(delay_s=0.004) as server:
        undisturbed = evaluate(plan, endpoint(server.url), tmp_path / "whole.jsonl", header(plan))
        server.seen.clear()
        first, second, third = (tmp_path / f"{number}.jsonl" for number in (1, 2, 3))
        kill_after(start(server.url, first), server, rng.randrange(1, COUNT // 2))
        cut = first.read_bytes()
        if rng.random() < 0.5:
            # The machine itself stopped: the last line is only there in part.
            first.write_bytes(cut[: cut.rstrip(b"\n").rfind(b"\n") + 1 + rng.randrange(1, 40)])
        before = read_evaluation(first)
        kill_after(start(server.url, second, str(first)), server, len(server.seen) + rng.randrange(1, COUNT // 3))
        between = read_evaluation(second)
        child = start(server.url, third, str(second))
        assert child.wait(60) == 0, child.communicate()[1]
        child.communicate()
    found = read_evaluation(third)
    whole = Evaluation(found.header, found.records, True)
    assert not before.complete and before.missing > 0
    assert {record.index for record in before.records} <= {record.index for record in between.records}
    assert whole.digest == undisturbed.digest
    assert compare(undisturbed, whole, "flexible").counts()["texts_differ"] == 0
    asked = Counter(server.prompts)
    final = {str(plan.prompts[record.index].content) for record in between.records}
    # Only what was on its way when it was killed was asked again: at most one for each open request.
    assert sum(count - 1 for count in asked.values()) <= 2 * (CONCURRENCY + 1)
    assert len(asked) == COUNT and final <= set(asked)
