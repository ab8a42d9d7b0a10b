"""``python -m vst.evals compare``: any two files, without a server, torch or vLLM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evals.plans import changed, evaluation, make_plan, right_answers
from vst.evals.__main__ import main

PLAN = make_plan(64)
RIGHT = right_answers(PLAN)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {
        "pre": changed(RIGHT, {}),
        "same": changed(RIGHT, {}),
        "noisy": changed(RIGHT, {1: RIGHT[1] + "!"}),
        "worse": changed(RIGHT, {index: "\x1b[2J#### 0" for index in range(9)}),
        "failed": changed(RIGHT, {2: None}),
    }
    for name, answers in texts.items():
        (tmp_path / f"{name}.jsonl").write_bytes(evaluation(PLAN, answers, name).to_bytes())
    whole = (tmp_path / "pre.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "other.jsonl").write_bytes(evaluation(make_plan(3), ["x"] * 3).to_bytes())
    return {path.stem: str(path) for path in tmp_path.glob("*.jsonl")}


CASES = [
    ("pre", "same", None, 0, "pass"),
    ("pre", "noisy", None, 12, "no repeat was given"),
    ("pre", "noisy", "same", 10, "so all must be equal"),
    ("pre", "noisy", "noisy", 12, "too wide for the margin"),
    ("pre", "worse", "noisy", 10, "9 lost and 0 gained"),
    ("pre", "worse", None, 10, "McNemar"),
    ("pre", "failed", "same", 10, "failed"),
    ("pre", "cut", None, 11, "has not come to its end"),
    ("pre", "other", None, 11, "not comparable"),
    ("pre", "missing", None, 11, "cannot be read"),
]


@pytest.mark.parametrize(("left", "right", "repeat", "code", "said"), CASES)
def test_the_exit_code_and_the_reason_fit_what_was_found(
    files: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    left: str,
    right: str,
    repeat: str | None,
    code: int,
    said: str,
) -> None:
    more = ["--repeat", files[repeat]] if repeat else []
    assert main(["compare", files[left], files.get(right, "missing.jsonl"), *more]) == code
    out, err = capsys.readouterr()
    assert said in out + err


def test_everything_that_decides_is_printed(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", files["pre"], files["worse"], "--repeat", files["noisy"], "--margin", "0.05"])
    out = capsys.readouterr().out
    for part in (
        "right is", "lost 9, gained 0", "McNemar's exact p = 0.003906", "paired difference -0.1406", "95% interval",
        "Tango 1998", "this sample shows a loss of", "margin 0.05", "noise floor: 1 texts",
    ):  # fmt: skip
        assert part in out
    assert out.count("  left   ") == out.count("  right  ") == 9
    assert "\x1b" not in out, "what a model wrote must not move the terminal's cursor"


def test_a_margin_that_is_none_is_a_wrong_command_line(files: dict[str, str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", files["pre"], files["same"], "--margin", "2"])
    assert stop.value.code == 2


def test_it_needs_neither_torch_nor_vllm(files: dict[str, str]) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "vst.evals", "compare", files["pre"], files["same"]]
    done = subprocess.run(argv, capture_output=True, text=True, env=dict(os.environ), check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert not imported & {"torch", "vllm", "scipy", "hydra"}
