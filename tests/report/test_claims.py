from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import vst
from vst.config import LANES, OPERATIONS
from vst.report.claims import claim, lane_claim


def check_ids() -> Iterator[str]:
    """The first argument of every ``Check(…)`` in the package that is written out, with ``x`` for what is filled in."""
    for file in Path(str(vst.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Check" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    yield str(first.value)
                elif isinstance(first, ast.JoinedStr):
                    yield "".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in first.values)


def test_every_check_of_the_package_has_a_sentence_that_says_what_it_proves() -> None:
    ids = set(check_ids())
    assert len(ids) > 25 and sorted(id for id in ids if "." in id and not claim(id)) == []


def test_every_lane_and_operation_has_one_too() -> None:
    assert [name for name in (*LANES, *OPERATIONS) if not lane_claim(name)] == []
    assert claim("no.such") == lane_claim("no") == ""
