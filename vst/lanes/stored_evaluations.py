"""Lane ``compare`` on two stored evaluations: ``lane.left`` was taken, ``lane.right`` is what it must equal."""

from __future__ import annotations

from pathlib import Path

from vst.errors import VerificationError
from vst.evals.compare import compare
from vst.evals.judging import judge_records, measure_floor, statistics
from vst.evals.store import FORMAT, read_evaluation
from vst.lanes.evaluation import rules
from vst.lanes.session import Session
from vst.verdict import Check, Outcome

FILE = "comparison-stored.json"
ID = "compare.evaluations"


def is_evaluation(path: str) -> bool:
    """Whether a file begins like an evaluation; one that cannot be read is none.

    Nor is a pipe: it cannot be looked into without taking from it what is to be read afterwards.
    """
    place = Path(path).expanduser().absolute()
    if not place.is_file():
        return False
    try:
        with place.open("rb") as file:
            return FORMAT.encode() in file.readline(1 << 20)
    except OSError:
        return False


def evaluations_check(session: Session) -> Check:
    """``compare.evaluations``: by records where ``lane.repeat`` shows that answers repeat, else by the paired test.

    ``lane.repeat`` is a second evaluation of the state of ``lane.right``. ``comparison-stored.json`` lists every flip.
    """
    lane, chosen = session.conf.lane, rules(session)
    expected, taken = str(lane.right), str(lane.left)
    try:
        right, left = (read_evaluation(Path(one).expanduser().absolute()) for one in (expected, taken))
        found = compare(right, left, chosen.extraction)
        repeat = read_evaluation(Path(lane.repeat).expanduser().absolute()) if lane.repeat else None
        floor = measure_floor(compare(right, repeat, chosen.extraction)) if repeat else None
    except VerificationError as error:
        return Check(ID, Outcome.REFUSED, taken, expected, reason=str(error))
    session.run.write(FILE, found.to_json())
    outcome, reason = judge_records(found, floor, chosen)
    observed = {
        **found.counts(),
        "differing": [pair.left.index for pair in found.differing],
        "floor": floor.to_json() if floor else None,
        "statistics": statistics(found, floor, chosen),
    }
    return Check(ID, outcome, observed, "the same evaluation", chosen.to_json(), reason, FILE)
