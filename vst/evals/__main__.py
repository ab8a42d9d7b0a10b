"""``python -m vst.evals compare pre.jsonl post.jsonl``: judge two evaluations without a server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vst.errors import VerificationError
from vst.evals.compare import compare
from vst.evals.judging import Rules, judge_records, measure_floor
from vst.evals.page import lines
from vst.evals.record import RULES
from vst.evals.store import read_evaluation
from vst.verdict import EXIT_CODES, EXIT_PASS, Outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison and its verdict; exit code 0 equal or within the margin, 10 changed, 11 not comparable, 12
    undecided.
    """
    given = _parser().parse_args(argv)
    rules = Rules(given.alpha, given.margin, given.power, given.extraction)
    try:
        left, right = read_evaluation(given.left), read_evaluation(given.right)
        found = compare(left, right, rules.extraction)
        floor = measure_floor(compare(left, read_evaluation(given.repeat), rules.extraction)) if given.repeat else None
    except VerificationError as error:
        print(f"vst: {error}", file=sys.stderr)
        return EXIT_CODES[Outcome.REFUSED]
    for line in lines(found, floor, rules):
        print(line)
    outcome, reason = judge_records(found, floor, rules)
    print(f"{outcome.value}{': ' + reason if reason else ''}")
    return EXIT_PASS if outcome is Outcome.PASS else EXIT_CODES[outcome]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vst.evals")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("compare", help="compare two evaluations record by record", description=main.__doc__)
    command.add_argument("left", type=Path, help="the evaluation that is expected")
    command.add_argument("right", type=Path, help="the evaluation that is judged")
    command.add_argument("--repeat", type=Path, help="a second evaluation of the state of LEFT: the noise floor")
    command.add_argument("--margin", type=_share, default=0.02, help="difference of accuracy that counts as none")
    command.add_argument("--alpha", type=_share, default=0.05, help="level of the test, 1 - confidence of the interval")
    command.add_argument("--power", type=_share, default=0.8, help="for the smallest effect that is told")
    command.add_argument("--extraction", choices=RULES, default="flexible", help="which reading of an answer counts")
    return parser


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
