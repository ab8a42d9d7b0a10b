"""Random walks over a real vLLM: legal moves in any order, and after every one of them all that must hold."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from walks.ground import Ground, compose_conf, stored
from walks.walking import Campaign, Walker

from e2e.conftest import Live, Run
from vst.lanes.sending import start_publisher

SHORT = (3, 5)
"""Walks and steps of each that the suite makes."""


@pytest.fixture
def campaign(
    ladder: Run, live: Live, pair: tuple[Path, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Campaign]:
    """Walks over the shared server, which is led home between them; the cold records are those of the ladder."""
    keep = request.config.getoption("--walk-plan") or tmp_path / "plan.json"
    ground = Ground(live.url, compose_conf(live.attach(*pair)), tmp_path)
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    publisher = start_publisher(ground.session)
    publisher.wait_ready()
    cold = [stored(ladder.dir / f"record-{name}.json") for name in ("model-1", "reference")]
    expected = dict(zip(("model", "checkpoint"), ground.ask_fewer((1, 4, 6), *cold), strict=True))

    def begin(number: int) -> Walker:
        return Walker(ground.session, expected, str(number), lambda: ground.exchanges)

    yield Campaign(begin, lambda walker: walker.go_home(), Path(keep))
    publisher.stop()


def test_random_walks_over_a_real_server_keep_everything_that_must_hold(
    campaign: Campaign, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--walk-steps=200`` makes a campaign of it, in walks of 20; ``--walk-plan=FILE`` keeps a walk that failed."""
    wanted = int(request.config.getoption("--walk-steps"))
    walks, steps = (wanted // 20, 20) if wanted else SHORT
    campaign.run(walks, steps)
    assert not campaign.plan.exists()
    assert campaign.steps >= max(wanted, 8)
    with capsys.disabled():
        if wanted:
            print(f"\n{campaign.steps} steps in {campaign.walks} walks without a violation:")
            print(json.dumps(dict(campaign.tally.most_common()), indent=1))
