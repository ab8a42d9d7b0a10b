from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vst.lanes.session import Session
from vst.lanes.state_at_end import state_at_end

ATTACHED = {"label": "attached", "argv": None}


def begun(*labels: str) -> list[dict[str, Any]]:
    return [{"label": label, "argv": ["vllm"]} for label in labels]


def ended(servers: list[dict[str, Any]]) -> dict[str, Any]:
    run = SimpleNamespace(evidence=SimpleNamespace(servers=servers))
    return state_at_end(cast(Session, SimpleNamespace(servers=(), fleet=None, run=run)))


@pytest.mark.parametrize("servers", [[], [ATTACHED]])
def test_a_run_that_came_to_no_server_says_so(servers: list[dict[str, Any]]) -> None:
    assert ended(servers) == {"state": "unknown", "holds": "unknown", "left": "no server was used"}


def test_a_server_that_was_still_starting_is_named_as_stopped() -> None:
    left = ended(begun("reference", "model"))["left"]
    assert left == "stopped before any came under test: reference, model"
