from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.tiny import make_tiny_pair
from vst.errors import ConfigError
from vst.selftest.fault import KINDS, parse
from vst.selftest.row import quoted
from vst.selftest.table import select, table, tensor_names

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_of_fault_is_in_the_table(seed: int) -> None:
    in_it = {fault.kind for row in table(seed) for fault in row.faults}
    # A fault of order is for walks: which moves it takes is not what a lane asks.
    assert in_it == set(KINDS) - {"order"}


def test_another_seed_hits_other_places_with_the_same_rows() -> None:
    one, two = table(1), table(2)
    broken = {"200_with_an_error_at"}
    names = [{row.name for row in rows if not any(row.name.startswith(part) for part in broken)} for rows in (one, two)]
    assert names[0] == names[1]
    assert sum(a.faults != b.faults for a, b in zip(one, two, strict=True)) > 20


def test_a_seed_gives_the_same_table_again() -> None:
    assert table(3) == table(3)


@pytest.mark.parametrize("phase", ["pause", "reset", "join", "start", "broadcast", "update", "finish", "resume"])
@pytest.mark.parametrize("kind", ["hang", "cut", "die"])
def test_every_phase_is_broken_in_every_way(kind: str, phase: str) -> None:
    row = next(row for row in table(1) if row.name == f"{kind}_at_{phase}")
    assert (row.faults[0].kind, row.faults[0].phase) == (kind, phase)


def test_every_row_with_a_fault_names_the_check_that_must_speak_or_warn() -> None:
    assert all(row.checks or row.warning for row in table(1) if row.faults)
    assert not any(row.checks for row in table(1) if not row.faults)


TEXTS = ["plain", "it's", r"a\.b", "\\", "ends\\", r"\'", "a'b\\'c", '{"match": "\\\\.1\\\\."}']


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives_hydras_command_line(text: str) -> None:
    parsed = OverridesParser.create().parse_overrides([f"key=[{quoted(text)}]"])
    assert parsed[0].value() == [text]


def test_the_faults_of_a_row_survive_hydras_command_line() -> None:
    for row in table(1):
        words = next(word for word in row.words() if word.startswith("server.faults="))
        values = OverridesParser.create().parse_overrides([words])[0].value()
        assert tuple(map(parse, values)) == row.faults


def test_rows_are_chosen_by_name_and_an_unknown_name_is_refused() -> None:
    rows = table(1)
    assert [row.name for row in select(rows, "no_effect, stale_ten*")] == ["stale_tensor", "no_effect"]
    assert select(rows, "all") == rows
    assert all(row.quick for row in select(rows, "quick"))
    with pytest.raises(ConfigError, match="no row is named staletensor"):
        select(rows, "staletensor")


def test_the_names_of_tensors_are_those_of_the_embedded_pair(tmp_path_factory: pytest.TempPathFactory) -> None:
    a, _ = make_tiny_pair(tmp_path_factory.mktemp("tiny"))
    assert sorted(tensor_names()) == sorted(read_manifest(a).by_name)
