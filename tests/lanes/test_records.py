from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oracle.answers import record, shifted

from vst.errors import VerificationError
from vst.lanes.records import cold_check, compare_check, read_record
from vst.server.facts import Instance, ServerFacts
from vst.verdict import Outcome


def stored(path: Path, floor: Any = 0.0) -> str:
    path.write_text(json.dumps({**record().to_json(), "noise_floor": floor}))
    return str(path)


def test_a_stored_record_comes_with_its_noise_floor(tmp_path: Path) -> None:
    assert read_record(stored(tmp_path / "r.json", 0.25)) == (record(), 0.25)


def test_the_record_inside_a_reference_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text(json.dumps({"record": record().to_json(), "facts": {}}))
    assert read_record(str(tmp_path / "reference.json")) == (record(), None)


@pytest.mark.parametrize("floor", [None, "0", True, -0.1, float("inf"), float("nan"), [0]])
def test_a_floor_that_is_no_measured_number_is_none(tmp_path: Path, floor: Any) -> None:
    assert read_record(stored(tmp_path / "r.json", floor))[1] is None


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "{}", '{"record": {}}', "\x00"])
def test_what_is_no_record_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(VerificationError):
        read_record(str(tmp_path / "bad.json"))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="none.json"):
        read_record(str(tmp_path / "none.json"))


def test_records_are_judged_by_the_floor_of_the_left_one() -> None:
    assert compare_check(shifted(record(), 0.1), 0.2, record(), "x").outcome is Outcome.PASS
    check = compare_check(shifted(record(), 0.3), 0.2, record(), "x")
    assert check.outcome is Outcome.FAIL and "4 of 8 positions differ" in check.reason


def test_without_a_measured_floor_there_is_no_judgement() -> None:
    """K13, its second half."""
    check = compare_check(record(), None, record(), "left.json")
    assert check.outcome is Outcome.INCONCLUSIVE and "left.json holds no noise floor" in check.reason


def attached(root: Path, loaded: Path, label: str | None = "default") -> Any:
    facts = ServerFacts(
        "0.32.0", ({"id": "m", "root": str(loaded)},), (), 1, False, False, label, Instance("1", None)
    )
    replica = SimpleNamespace(server=SimpleNamespace(title="", name="m"), facts=facts)
    conf = SimpleNamespace(server=SimpleNamespace(kind="attach"))
    fleet = SimpleNamespace(replicas=(replica,))
    manifests = {"model": SimpleNamespace(path=root)}
    return SimpleNamespace(conf=conf, manifests=manifests, need=lambda name: fleet)


def test_a_running_server_gives_a_reference_only_of_what_it_loaded_and_before_any_update(tmp_path: Path) -> None:
    """A reference of a server that was pushed to made a stale tensor pass for a cold one."""
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    assert cold_check(attached(b, b)).outcome is Outcome.PASS
    # Where it lies on another machine cannot be seen from here.
    assert cold_check(attached(b, tmp_path / "elsewhere")).outcome is Outcome.PASS
    for wrong in (attached(b, a), attached(b, b, "vst-1"), attached(b, b, None)):
        check = cold_check(wrong)
        assert check.outcome is Outcome.REFUSED and check.reason
