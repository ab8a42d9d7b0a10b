"""The rules by which runs become rows, and the stored table of the field test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vst.report.matrix as matrix_module
from report.stored import ladder, lane, write_run
from vst.checkpoint.zoo.catalogue import CATALOGUE
from vst.errors import ConfigError
from vst.report.material import read_material
from vst.report.matrix import features, matrix, result
from vst.report.matrix_page import page
from vst.verdict import Check, LaneVerdict, Outcome

FIELD = Path(__file__).parents[1] / "field"


def ended(path: Path, *lanes: LaneVerdict, name: str = "zoo-llama") -> Path:
    return write_run(path, list(lanes), name=name)


GOOD = lane("L1", Check("server.alive", Outcome.PASS))


@pytest.mark.parametrize(
    ("last", "word"),
    [
        (lane("L3", Check("transition.to_b", Outcome.PASS)), "pass"),
        (lane("L3", Check("transition.to_b", Outcome.FAIL, reason="wrong")), "fault"),
        (lane("L2", Check("identity.record", Outcome.FAIL, reason="wrong")), "fault"),
        (lane("L1", Check("server.alive", Outcome.FAIL, reason="mute")), "infrastructure"),
        (lane("L1", Check("server.reachable", Outcome.ERROR, reason="ended")), "infrastructure"),
        (lane("L3", Check("server.answers", Outcome.ERROR, reason="gone")), "error"),
        (lane("L3", Check("reference.comparable", Outcome.REFUSED, reason="other")), "refused"),
        (lane("L3", Check("control.norm", Outcome.INCONCLUSIVE, reason="unseen")), "inconclusive"),
    ],
)
def test_a_result_follows_from_the_cause_and_where_it_was_seen(tmp_path: Path, last: LaneVerdict, word: str) -> None:
    assert result(read_material(ended(tmp_path / "run", GOOD, last))) == word


def test_a_row_tells_the_first_check_that_failed_and_where_its_evidence_is(tmp_path: Path) -> None:
    last = lane("L3", Check("transition.to_b", Outcome.FAIL, reason="looks  like\nneither"))
    [row] = matrix([ended(tmp_path / "one", GOOD, last)])["rows"]
    assert row["cause"] == "looks like neither"
    assert row["failing"][0] == {"lane": "L3", "check": "transition.to_b", "outcome": "fail"}
    assert row["lanes"]["L1"] == "pass" and row["lanes"]["L3"] == "fail" and row["lanes"]["L4"] == "not reached"
    assert set(row["evidence"]["one"]) == {"verdict.json"}


def test_a_server_that_went_down_is_told_by_its_workers_first_error_and_without_places(tmp_path: Path) -> None:
    gone = lane("L1", Check("server.reachable", Outcome.ERROR, reason="see /home/me/x.log: the server ended"))
    path = ended(tmp_path / "one", gone)
    assert matrix([path])["rows"][0]["cause"] == "see …/x.log: the server ended"
    log = b"(APIServer pid=1) Error: no\n(Worker pid=2) ERROR 1 [a.py:9] KeyError: 'bias'\n(Worker) [b] OSError: x\n"
    log_of = tmp_path / "two"
    write_run(log_of, [gone], name="zoo-llama", raw={"server-model.log": log})
    assert matrix([log_of])["rows"][0]["cause"] == "KeyError: 'bias'"


def test_runs_of_one_kind_over_one_model_are_not_chosen_between(tmp_path: Path) -> None:
    for name in ("one", "two"):
        ended(tmp_path / name, GOOD)
    with pytest.raises(ConfigError, match="are runs of one kind over zoo-llama"):
        matrix([tmp_path])


def test_a_bundle_that_does_not_hold_makes_no_row(tmp_path: Path) -> None:
    path = ladder(tmp_path / "run")
    (path / "record-model-1.json").write_text("{}")
    with pytest.raises(ConfigError, match="does not hold"):
        matrix([path])


def test_no_runs_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run of the ladder"):
        matrix([tmp_path])


def test_no_features_are_told_of_a_processor_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(tmp_path / "one", GOOD)
    assert matrix([run])["environment"]["features"] is None
    known = {"vllm": "0.32.0", "torch": "2.13.0", "python": "3.11.7", "cpu": "One CPU", "cores": 2}
    monkeypatch.setattr(matrix_module, "_one_environment", lambda material: known)
    monkeypatch.setattr(matrix_module, "cpu_facts", lambda: {"models": ["One CPU"]})
    assert matrix([run])["environment"]["features"] == features()
    monkeypatch.setattr(matrix_module, "cpu_facts", lambda: {"models": ["Another CPU"]})
    with pytest.raises(ConfigError, match="this is Another CPU: make the table on one as theirs"):
        matrix([run])


def test_a_row_shows_the_variables_that_not_all_servers_had(stored: dict[str, Any]) -> None:
    rows = [dict(row) for row in stored["rows"]]
    one = next(row for row in rows if (row["model"], row["tensor_parallel_size"]) == ("gemma2", 1))
    assert "`OMP_" not in page(stored), "all servers of the published table had the same"
    one["server_env"] = {**one["server_env"], "OMP_NUM_THREADS": "1"}
    text = page({**stored, "rows": rows})
    assert "| gemma2 (`OMP_NUM_THREADS=1`)" in text and "VLLM_TARGET_DEVICE" not in text
    assert text.count("`OMP_NUM_THREADS=1`") == 1 and "OMP_WAIT_POLICY" not in text


def test_the_features_are_those_of_the_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name : X\nflags : fpu avx2 avx512f sse2 amx_bf16\n")
    assert features(tmp_path / "cpuinfo") == ["amx_bf16", "avx2", "avx512f"]


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return dict(json.loads((FIELD / "matrix.json").read_text()))


def test_the_published_page_is_the_one_of_the_published_table(stored: dict[str, Any]) -> None:
    assert (FIELD / "matrix.md").read_text() == page(stored)


def test_the_published_table_has_twenty_architectures_each_with_evidence(stored: dict[str, Any]) -> None:
    models = {row["model"] for row in stored["rows"] if row["tensor_parallel_size"] == 1}
    assert len(models) >= 20 and models <= set(CATALOGUE)
    for row in stored["rows"]:
        assert row["evidence"] and all(len(one["verdict.json"]) == 64 for one in row["evidence"].values())
        assert (row["result"] == "pass") is (row["exit_code"] == 0)
    for key in ("vllm", "torch", "cpu", "features", "dates"):
        assert stored["environment"][key], key


def test_the_published_table_has_no_place_of_the_machine_that_made_it(stored: dict[str, Any]) -> None:
    text = json.dumps(stored)
    assert not [word for word in ("/tmp/", "/root/", "/home/", "site-packages") if word in text]


def test_the_published_results_are_those_of_the_fields_that_they_follow_from(stored: dict[str, Any]) -> None:
    found = {row["model"]: row["result"] for row in stored["rows"] if row["tensor_parallel_size"] == 1}
    assert {found[name] for name in ("llama", "qwen3", "phi3", "olmo2")} == {"pass"}
    assert {found[name] for name in ("qwen2-tied", "gemma3", "mixtral", "qwen3-moe", "mamba2", "gpt-oss")} == {"fault"}


@pytest.mark.parametrize(
    ("model", "why"),
    [("qwen2-tied", "tied head"), ("gemma3", "tied head"), ("mixtral", "experts"), ("qwen3-moe", "experts")],
)
def test_the_published_diagnoses_name_what_breaks_in_no_more_than_twelve_pushes(
    stored: dict[str, Any], model: str, why: str
) -> None:
    [row] = [one for one in stored["rows"] if one["model"] == model and one["tensor_parallel_size"] == 1]
    assert row["diagnosis"]["why"] == [why] and row["diagnosis"]["minimal"] is True
    assert row["diagnosis"]["pushes"] <= 12
