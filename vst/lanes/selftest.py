"""Lane ``selftest``: the tool against its own scripted servers, healthy ones and ones with a known fault.

Every row is a run of the product like any other, in a process and a directory of its own. A fault that is not caught by
the check that is meant for it, or a healthy server that does not PASS, fails the lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from vst.lanes.ladder import Show
from vst.lanes.session import Session
from vst.selftest.double import SAYS
from vst.selftest.judging import Result, judge
from vst.selftest.pairs import make_pair
from vst.selftest.row import Row
from vst.selftest.running import Rows, kinds
from vst.selftest.table import select, table
from vst.selftest.verdicts import FILE, FORMAT, checks, told
from vst.selftest.warm_start import WarmProcess
from vst.verdict import LaneVerdict, Verdict


def selftest(session: Session, verdict: Verdict, show: Show) -> None:
    """Run the rows that were asked for, write ``selftest.json`` and judge it."""
    conf = session.conf.lane
    jobs = [(seed, row) for seed in range(1, int(conf.seeds or 1) + 1) for row in select(table(seed), str(conf.rows))]
    directory = session.run.path.with_name(session.run.path.name + ".rows")
    directory.mkdir(parents=True)
    cache = Path(session.conf.paths.cache).expanduser().absolute()
    checkpoints = {name: make_pair(name, cache) for name in kinds([row for _, row in jobs])}
    with ExitStack() as stack:
        prefix: tuple[str, ...] = ()
        if conf.warm:
            session.progress.say("importing once for all rows")
            warm = stack.enter_context(WarmProcess(directory / "warm.log"))
            warm.wait()
            prefix = warm.prefix
        rows = Rows(directory, checkpoints, prefix, float(conf.row_timeout_s or 0))
        results = _run(session, rows, jobs, int(conf.parallel or 1))
    found = as_table(jobs, results)
    session.run.write(FILE, found)
    verdict.lanes.append(LaneVerdict("selftest", tuple(checks(found))))
    show(verdict.lanes[-1])


def _run(session: Session, rows: Rows, jobs: Sequence[tuple[int, Row]], parallel: int) -> list[Result]:
    """All rows, ``parallel`` at once; an end from outside ends them all."""
    results: list[Result] = []
    pool = ThreadPoolExecutor(max_workers=parallel)
    try:
        futures = [pool.submit(_one, rows, seed, row) for seed, row in jobs]
        for future in as_completed(futures):
            result = future.result()
            results.append(result)
            session.run.event("row", **result.to_json())
            line = told({"name": result.row, "seed": result.seed, "result": result.to_json()})
            session.progress.say(f"{len(results)} of {len(jobs)}: {line}")
    except BaseException:
        rows.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return results


def _one(rows: Rows, seed: int, row: Row) -> Result:
    return judge(row, seed, rows.run(row, seed))


def as_table(jobs: Sequence[tuple[int, Row]], results: Sequence[Result]) -> dict[str, Any]:
    """What ``selftest.json`` holds: each row, what had to come out of it, and what did."""
    found = {(one.row, one.seed): one.to_json() for one in results}
    rows = [{**row.to_json(), "seed": seed, "result": found.get((row.name, seed))} for seed, row in jobs]
    return {"format": FORMAT, "server": SAYS, "rows": rows}
