"""Random walks over scripted servers: a healthy one gives nothing to find, and a seeded violation is found and shrunk
to the few steps that it takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vst.checkpoint.tiny import make_tiny_pair
from vst.config import VstConf
from vst.oracle.record import Record
from vst.selftest.fault import Fault, make
from vst.server.plan import outcomes, read_plan
from vst.transfer.publisher import Deadlines, Publisher
from walks.doubles import double
from walks.ground import Ground, compose_conf
from walks.walking import Campaign, Violation, Walker


@dataclass
class Doubles:
    """Opens a walk on a new double each time; the publisher and the cold records are shared."""

    conf: VstConf
    directory: Path
    publisher: Publisher
    expected: dict[str, Record] = field(default_factory=dict)
    open_ones: dict[str, ExitStack] = field(default_factory=dict)

    def cold(self, role: str, model: Path) -> None:
        with double(model) as url:
            self.expected[role] = Ground(url, self.conf, self.directory).record(role)

    def open(self, number: int, *faults: Fault) -> Walker:
        stack = ExitStack()
        url = stack.enter_context(double(Path(self.conf.model.path), *faults))
        ground = Ground(url, self.conf, self.directory, self.publisher)
        walker = Walker(ground.session, self.expected, str(number), lambda: ground.exchanges)
        self.open_ones[walker.name] = stack
        return walker

    def close(self, walker: Walker) -> None:
        self.open_ones.pop(walker.name).close()


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doubles]:
    directory = tmp_path_factory.mktemp("walks")
    a, b = make_tiny_pair(directory / "tiny")
    publisher = Publisher(Deadlines(120, 30, 30, 30, 30, 1e6), directory / "publisher.log", lambda report: None)
    publisher.start({**os.environ, "VLLM_TARGET_DEVICE": "cpu", "OMP_NUM_THREADS": "1"})
    attach = ["server=attach", "server.base_url=http://127.0.0.1:1", "model=local", "model.name=tiny"]
    few = ["oracle.probes=1", "oracle.max_tokens=16", "oracle.output_tokens=2"]
    found = Doubles(compose_conf([*attach, f"model.path='{a}'", f"checkpoint.path='{b}'", *few]), directory, publisher)
    found.cold("model", a)
    found.cold("checkpoint", b)
    yield found
    publisher.stop()


def test_walks_over_a_healthy_double_find_nothing(doubles: Doubles, tmp_path: Path) -> None:
    campaign = Campaign(doubles.open, doubles.close, tmp_path / "plan.json")
    campaign.run(walks=4, steps=12)
    assert campaign.steps >= 30
    assert not campaign.plan.exists()


@pytest.mark.parametrize(
    ("fault", "told", "steps"),
    [
        (make("wake_restores_nothing", levels=[1]), "first", 4),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else None,
)
def test_seeded_violation_is_found_shrunk_and_kept_as_a_plan(
    doubles: Doubles, tmp_path: Path, fault: Any, told: str, steps: int
) -> None:
    campaign = Campaign(lambda number: doubles.open(number, fault), doubles.close, tmp_path / "plan.json")
    with pytest.raises(Violation, match=told):
        campaign.run(walks=30, steps=12)
    plan = read_plan(campaign.plan)
    assert 1 <= len(plan) <= steps, [str(step) for step in plan]
    assert outcomes(plan), "lane.plan would refuse it"
    walker = doubles.open(0, fault)
    with pytest.raises(Violation, match=told):
        for step in plan:
            walker.make(step)
    doubles.close(walker)
