"""The order of the suite, its campaigns, and what is said of tests that could not run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

# The threads of a server wait for each other by spinning, which keeps the cores from the servers of other tests: where
# there are more threads than cores an answer took up to 11 s instead of 0.4. What they compute is the same.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# torch looks up the name of whoever joins a group (``getnameinfo`` in c10d's socket.cpp), and ::ffff:127.0.0.1 is in no
# hosts file. A name server that loses one question in fifty held a join for the five seconds of glibc's default.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:3")

# In the background of a script Ctrl-C is ignored, also by what is started there: who interrupts it waits in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent
NOT_INSTALLED = "is not installed and cannot be"
CAMPAIGNS = (
    "cluster/test_real_sweep.py",
    "e2e/test_drafts.py",
    "e2e/test_endurance.py",
    "e2e/test_expert_search.py",
    "e2e/test_faults.py",
    "e2e/test_field.py",
    "e2e/test_lifecycle.py",
    "e2e/test_mtp.py",
    "e2e/test_quality.py",
    "e2e/test_replicas.py",
    "e2e/test_selftest.py",
    "e2e/test_walks.py",
)
"""Files that would take the suite beyond half an hour: ``./launchers/check --campaigns`` has them."""

FIRST = (
    "e2e/test_ladder.py",
    "cluster/test_slurm_trouble.py",
    "e2e/test_interrupted.py",
    "cluster/test_real_endings.py",
    "cluster/test_slurm_runs.py",
    "e2e/test_cases.py",
    "cluster",
    "e2e",
)
"""Long files and their folders, those that wait for SLURM and those that keep the cores busy by turns."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of campaigns that are too long for the suite and are run by hand."""
    group = parser.getgroup("campaigns")
    group.addoption("--campaigns", action="store_true", help="also the files of CAMPAIGNS: long ones, on real servers")
    group.addoption("--walk-steps", default="0", help="steps of the random walks over a real server; 0: a short walk")
    group.addoption("--selftest-seeds", default="0", help="seeds of the whole table of faults; 0: a part of it, once")
    group.addoption("--walk-plan", help="where the plan of a walk that failed is kept")


def _name(item: pytest.Item) -> str:
    return str(Path(str(item.path)).relative_to(ROOT))


def _place(item: pytest.Item) -> tuple[int, bool]:
    """Long files first: one of them that came last would keep all others waiting for it."""
    name = _name(item)
    first = next((n for n, one in enumerate(FIRST) if name.startswith(one)), len(FIRST))
    # A worker of an idle server keeps polling, so tests that don't need the shared one go before it is started.
    return first, "live" in getattr(item, "fixturenames", ())


def _is_campaign(item: pytest.Item) -> bool:
    return _name(item) in CAMPAIGNS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    campaigns = [] if config.getoption("--campaigns") else [item for item in items if _is_campaign(item)]
    if campaigns:
        config.hook.pytest_deselected(items=campaigns)
    left_out = set(campaigns)
    items[:] = sorted((item for item in items if item not in left_out), key=_place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A machine on which something cannot be installed is told how many tests that cost, once and in one line."""
    reasons = [line for report in terminalreporter.stats.get("error", []) for line in _reasons(str(report.longrepr))]
    for reason in sorted(set(reasons)):
        terminalreporter.write_line(f"{reasons.count(reason)} tests did not run, so nothing is shown by them: {reason}")


def _reasons(text: str) -> Iterator[str]:
    lines = (line.partition("Failed: ")[2] for line in text.splitlines())
    return (line for line in lines if NOT_INSTALLED in line[:80])
