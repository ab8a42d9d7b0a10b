"""The page of a matrix: a Markdown table for each number of workers, and what the words mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vst.report.matrix import LANES

SHOWN = 3
MARKS = {"pass": "✓", "fail": "✗", "error": "error", "refused": "refused", "inconclusive": "?", "not reached": "–"}
HEAD = """\
# The ladder over real architectures on a real vLLM

Small random checkpoints A and B of each architecture, made by `model=zoo/…`; a server that was started on A, brought
to B by vLLM's own weight transfer, and compared with a server that was started on B. Every row follows from the files
of its runs by the rules in `vst/report/matrix.py`; none was judged by hand. `matrix.json` beside this page has the
digests of the evidence.

"""
WORDS = """
`✓` passed, `✗` a property is false, `?` the evidence cannot decide, `–` not reached or not asked for. *infrastructure*
is a server that could not be started or that died before anything was pushed: no fault of a transition; *error* is one
that broke after a push. The tensors are those that a diagnosis (`lane=diagnose`) had to leave out for the rest to
arrive; *reload* says whether vLLM's own `reload_weights` from disk gives the same answers as the push.
"""


def page(matrix: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    lines = [HEAD, *_environment(matrix["environment"])]
    for size in sorted({row["tensor_parallel_size"] for row in matrix["rows"]}):
        rows = [row for row in matrix["rows"] if row["tensor_parallel_size"] == size]
        lines += [f"\n## {size} worker{'s' * (size > 1)}\n\n", *_table(rows, _common(matrix["rows"]))]
    return "".join([*lines, WORDS, *_causes(matrix["rows"])])


def _environment(found: Mapping[str, Any]) -> list[str]:
    told = {
        "vLLM": found["vllm"],
        "torch": found["torch"],
        "Python": found["python"],
        "processor": f"{found['cpu']}, {found['cores']} cores, {found['machine']}",
        "vector features": ", ".join(found["features"] or ["not recorded"]),
        "dates": ", ".join(found["dates"]),
    }
    return [f"* {name}: {value}\n" for name, value in told.items()]


def _common(rows: list[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The variables that every row's servers were started with."""
    return set.intersection(*(set(row["server_env"].items()) for row in rows))


def _table(rows: list[Mapping[str, Any]], common: set[tuple[str, str]]) -> list[str]:
    head = ["architecture", *LANES, "result", "tensors that do not arrive", "pushes", "reload"]
    return [_line(head), _line(["---"] * len(head)), *(_line(_cells(row, common)) for row in rows)]


def _cells(row: Mapping[str, Any], common: set[tuple[str, str]]) -> list[str]:
    found = row["diagnosis"]
    tensors = pushes = reload = ""
    if found is not None and found["mode"] is not None:
        parts = ", ".join(f"`{part}`" for part in found["parts"][:SHOWN])
        parts += f" and {len(found['parts']) - SHOWN} more" if len(found["parts"]) > SHOWN else ""
        what = ": ".join(text for text in (", ".join(found["why"]), parts) if text) or "not found"
        tensors = f"{what}{'; identity alone breaks' if found['mode'] == 'identity' else ''}"
        tensors += "" if found["minimal"] else " (not minimal)"
        pushes, reload = str(found["pushes"]), found["reload"]
    name = row["model"]
    extra = [f"{key}={value}" for key, value in row["server_env"].items() if (key, value) not in common]
    extra += [word for word in row["server_args"] if word != "--enforce-eager"]
    name += f" (`{' '.join(extra)}`)" if extra else ""
    marks = [MARKS[row["lanes"][lane]] for lane in LANES]
    return [name, *marks, row["result"], tensors, pushes, reload]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _causes(rows: list[Mapping[str, Any]]) -> list[str]:
    lines = ["\n## Causes\n\n"]
    for row in rows:
        if row["result"] == "pass":
            continue
        first = row["failing"][0] if row["failing"] else {"lane": "", "check": ""}
        lines.append(f"* **{row['model']}**, TP {row['tensor_parallel_size']}: `{first['check']}` {row['cause']}\n")
        if row["diagnosis"] is not None:
            lines.append(f"  {row['diagnosis']['said']}\n")
    return lines
