"""Lane ``selftest``: the tool against its own scripted servers, healthy ones and ones with a known fault.

Every row is a run of the product like any other, in a process and a directory of its own. A fault that is not caught by
the check that is meant for it, or a healthy server that does not PASS, fails the lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from vst.lanes.ladder import Show
from vst.lanes.session import Session
from vst.selftest.judging import Result, judge
from vst.selftest.pairs import make_pair
from vst.selftest.row import Row
from vst.selftest.running import Rows, kinds
from vst.selftest.table import select, table
from vst.selftest.warm_start import WarmProcess
from vst.verdict import Check, LaneVerdict, Outcome, Verdict

FORMAT = "vst-selftest/1"
FILE = "selftest.json"


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
    write(session, jobs, results)
    verdict.lanes.append(LaneVerdict("selftest", tuple(checks([row for _, row in jobs], results))))
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
            session.progress.say(f"{len(results)} of {len(jobs)}: {told(result)}")
    except BaseException:
        rows.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return sorted(results, key=lambda result: (result.row, result.seed))


def _one(rows: Rows, seed: int, row: Row) -> Result:
    return judge(row, seed, rows.run(row, seed))


def told(result: Result) -> str:
    """One line about one row."""
    by = f" by {', '.join(result.failing[:3])}" if result.failing else ""
    return f"{result.row}, seed {result.seed}: {result.outcome}{by} ({result.seconds:.1f} s)"


def write(session: Session, jobs: Sequence[tuple[int, Row]], results: Sequence[Result]) -> None:
    """Store the table: what each row was, what had to come out, and what did."""
    asked = {(row.name, seed): row.to_json() for seed, row in jobs}
    content = {
        "format": FORMAT,
        "server": "scripted double, not a vLLM",
        "rows": [{**asked[(one.row, one.seed)], "result": one.to_json()} for one in results],
    }
    session.run.write(FILE, content)


def checks(rows: Sequence[Row], results: Sequence[Result]) -> list[Check]:
    """One check for each row over all its seeds, and the three numbers that the table comes down to."""
    healthy = {row.name for row in rows if row.healthy}
    names = list(dict.fromkeys(row.name for row in rows))
    by_row = {name: [result for result in results if result.row == name] for name in names}
    each = [_row_check(name, name in healthy, by_row[name]) for name in names]
    return [*_sums(healthy, len(rows), results), *each]


def _sums(healthy: set[str], wanted: int, results: Sequence[Result]) -> list[Check]:
    lost = [one for one in results if one.outcome == "no verdict"]
    alarms = [one for one in results if one.row in healthy and not one.good]
    missed = [one for one in results if one.row not in healthy and not one.good]
    sound = [one for one in results if one.row in healthy]
    faulty = len(results) - len(sound)
    return [
        _sum("selftest.complete", len(results) - len(lost), wanted, lost, "rows with a verdict", Outcome.ERROR),
        _sum("selftest.faults", faulty - len(missed), faulty, missed, "faults caught"),
        _sum("selftest.healthy", len(sound) - len(alarms), len(sound), alarms, "healthy servers passed"),
    ]


def _sum(id: str, good: int, wanted: int, bad: Sequence[Result], what: str, outcome: Outcome = Outcome.FAIL) -> Check:
    observed, expected = f"{good} of {wanted} {what}", f"{wanted} of {wanted}"
    if bad or good != wanted:
        named = "; ".join(told(one) for one in bad)
        return Check(id, outcome, observed, expected, reason=f"{observed}: {named}", evidence=FILE)
    if wanted == 0:
        why = "lane.rows asks for none of these"
        return Check(id, Outcome.NOT_APPLICABLE, observed, expected, reason=f"declared: {why}", evidence=FILE)
    return Check(id, Outcome.PASS, observed, expected, reason=observed, evidence=FILE)


def _row_check(name: str, healthy: bool, results: Sequence[Result]) -> Check:
    id = f"{'healthy' if healthy else 'fault'}.{name}"
    expected = "PASS" if healthy else "FAIL_CLOSED by the check that is meant for it"
    observed = [one.to_json() for one in results]
    bad = next((one for one in results if not one.good), None)
    if bad is not None or not results:
        reason = f"{told(bad)}: {bad.reason}" if bad else "no run of this row"
        outcome = Outcome.ERROR if bad is None or bad.outcome == "no verdict" else Outcome.FAIL
        return Check(id, outcome, observed, expected, reason=reason, evidence=FILE)
    first = results[0]
    return Check(id, Outcome.PASS, observed, expected, reason=f"{first.verdict}: {first.reason}"[:160], evidence=FILE)

