"""For every tensor of the tiny model: a push that leaves just this tensor at A's value is noticed."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from hydra import compose, initialize_config_dir

from e2e.conftest import Live, Run, Vst
from vst import config
from vst.confdir import conf_dir
from vst.lanes.asking import take
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files
from vst.lanes.fleet_opening import open_servers
from vst.lanes.references import obtain
from vst.lanes.servers import close
from vst.lanes.session import Session
from vst.lanes.transaction import Push, transact
from vst.lanes.transition import arrival_check
from vst.oracle.compare import difference, looks_like
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.verdict import Outcome


class Silent:
    def say(self, text: str) -> None:
        """Nobody looks."""

    def bytes(self, what: str, done: int, total: int) -> None:
        """Nobody looks."""


def open_session(overrides: list[str], run: Path) -> Session:
    config.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        conf = config.load(compose("config", overrides))
    return Session(conf, RunDir(run, Request(("test",), tuple(overrides), f"sha256:{0:064}")), Silent())


@pytest.fixture
def session(ladder: Run, live: Live, pair: tuple[Path, Path], vst: Vst, tmp_path: Path) -> Session:
    assert ladder.code == 0, ladder.out
    return open_session([*live.attach(*pair), f"paths.cache='{vst.cache}'", "lane=L3"], tmp_path / "run")


def test_each_tensor_left_behind_is_noticed(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    run_files(session)
    open_servers(session)
    contract = run_contract(session)
    assert contract.passed, contract
    cold_b = obtain(session).record
    rows = []
    try:
        for entry in session.manifests["checkpoint"].tensors:
            transact(session, Push("checkpoint", "model", (entry.name,), purpose=f"left behind: {entry.name}"))
            record = take(session, session.need("server"), "B?", "left-behind")
            apart = difference(record, cold_b, session.need("floor"))
            like = "" if apart.equal else looks_like(record, cold_b, session.records[0], session.need("floor"))
            result = {**apart.to_json(), "record": "record-left-behind.json", "looks_like": like}
            rows.append((entry.name, arrival_check("transition.to_b", [result], 1, "equals B", session.floor), apart))
    finally:
        close(session)
    with capsys.disabled():
        print("\ntensor left at A's value                          transition.to_b  largest difference  positions")
        for name, check, apart in rows:
            print(f"{name:<50}{check.outcome.value:<17}{apart.largest:<20.4f}{apart.differing} of {apart.positions}")
    assert len(rows) == 30
    assert [name for name, check, _ in rows if check.outcome is not Outcome.FAIL] == []
    assert httpx.get(f"{session.conf.server.base_url}/is_paused", trust_env=False).json() == {"is_paused": False}
