"""The published schemas describe what runs really write, and refuse what they must never write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from vst.errors import ConfigError
from vst.provenance.__main__ import main
from vst.provenance.encoding import to_bytes
from vst.provenance.schema import NAMES, schema, schema_for, validate_run

from .conftest import Run

Copied = Callable[[Run], Run]

VERSIONS = {"manifest": 2}
"""Of the schemas whose format is not the first."""


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_is_a_schema_with_a_version(name: str) -> None:
    content = schema(name)
    Draft202012Validator.check_schema(content)
    assert content["$id"] == f"urn:vst:schema:{name}:{VERSIONS.get(name, 1)}"


@pytest.mark.parametrize("kind", ["passing", "failing", "terminated", "killed"])
def test_every_file_of_a_run_meets_its_schema(kind: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(kind)
    assert validate_run(run.path) == []


def test_validation_names_file_and_place(passing: Run, copied: Copied) -> None:
    run = copied(passing)
    verdict = run.json("verdict.json")
    verdict["lanes"][0]["checks"][0]["warnings"] = "none"
    (run.path / "verdict.json").write_bytes(to_bytes(verdict))
    (found,) = validate_run(run.path)
    assert found == "verdict.json: lanes/0/checks/0/warnings: 'none' is not of type 'array'"


def spoil(verdict: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(verdict))
    place: Any = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


def test_a_verdict_that_contradicts_itself_does_not_meet_its_schema(passing: Run) -> None:
    verdict, validator = passing.json("verdict.json"), Draft202012Validator(schema("verdict"))
    validator.validate(verdict)
    for path, value in (
        (("exit_code",), 10),
        (("exit_code",), 3),
        (("interrupted",), True),
        (("cause",), "fail"),
        (("server", "state"), "fine"),
        (("lanes", 0, "cause"), "error"),
        (("lanes", 0, "checks"), []),
        (("lanes", 0, "checks", 0, "outcome"), "refused"),
        (("lanes", 0, "checks", 0, "warnings"), None),
        (("surprise",), 1),
    ):
        with pytest.raises(ValidationError):
            validator.validate(spoil(verdict, *path, value=value))


def test_a_sidecar_without_one_of_its_blocks_does_not_meet_its_schema(passing: Run) -> None:
    sidecar, validator = passing.json("run.json.meta.json"), Draft202012Validator(schema("sidecar"))
    for block in set(sidecar["predicate"]):
        less = {key: value for key, value in sidecar["predicate"].items() if key != block}
        assert list(validator.iter_errors({**sidecar, "predicate": less})), block


def test_which_schema_a_file_has_follows_from_its_name() -> None:
    expected = {
        "record-control-norm.json": "record",
        "record-reference.json": "record",
        "reference.json": "reference",
        "weight-update.json": "weight-update",
        "weight-update-12.json": "weight-update",
        "manifest-model.json": "manifest",
        "evaluation-pre.jsonl": "evaluation",
        "evaluation-pre.jsonl.meta.json": "sidecar",
        "comparison-records.json": "comparison",
        "server-model.log.meta.json": "sidecar",
        "server-model.log": None,
        ".hydra/config.yaml": None,
        "events.jsonl": None,
    }
    assert {name: schema_for(name) for name in expected} == expected


def test_a_schema_can_be_read_from_the_command_line_and_a_wrong_name_is_answered_with_all_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["schema", "verdict"]) == 0
    assert json.loads(capsys.readouterr().out) == schema("verdict")
    with pytest.raises(ConfigError, match="expected one of verdict, run, sidecar"):
        schema("vedrict")
