"""Whether every reference answer of GSM8K is read right: ``python tests/bench/bench_gsm8k.py …/test.jsonl``.

The file is not part of this repository. Its own solutions are read by both rules and compared with what stands after
their last marker; exit code 1 when one differs.
"""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from pathlib import Path

from vst.evals.extract import extract
from vst.evals.question import read_questions


def main() -> int:
    questions = read_questions(Path(sys.argv[1]))
    begun, wrong = time.perf_counter(), []
    for question in questions:
        stated = Fraction(question.solution.rpartition("####")[2].strip().replace(",", ""))
        found = extract(question.solution)
        if not found.strict == found.flexible == question.value == stated:
            wrong.append((question.text, stated, found))
    spent = time.perf_counter() - begun
    each = f"{spent / len(questions) * 1e6:.0f} us each"
    print(f"{len(questions) - len(wrong)} of {len(questions)} read right by both rules, {each}")
    unmarked = sum(extract(q.solution.rpartition("####")[0]).flexible == q.value for q in questions)
    print(f"{unmarked} of {len(questions)} by the flexible rule with the marker taken away (the steps' last number)")
    for text, stated, found in wrong:
        print(f"wrong: {stated}, read as {found}: {text[:100]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
