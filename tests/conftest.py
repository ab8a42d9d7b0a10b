"""The options of campaigns that are too long for the suite and are run by hand."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("campaigns")
    group.addoption("--walk-steps", default="0", help="steps of the random walks over a real server; 0: a short walk")
    group.addoption("--selftest-seeds", default="0", help="seeds of the whole table of faults; 0: a part of it, once")
    group.addoption("--walk-plan", help="where the plan of a walk that failed is kept")
