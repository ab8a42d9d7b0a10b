from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vst.confdir import conf_dir
from vst.help import COMMANDS, page


@pytest.mark.parametrize(
    "group", [path.name for path in conf_dir().iterdir() if path.is_dir() and path.name != "hydra"]
)
def test_the_page_lists_every_option_of_every_group(group: str) -> None:
    groups = page(conf_dir()).partition("groups and their options")[2]
    (line,) = [line for line in groups.splitlines() if line.split()[:1] == [group] and line.startswith("  ")]
    options = line.split(maxsplit=1)[1].split(", ")
    assert sorted(options) == sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def test_the_page_fits_a_terminal_and_names_every_exit_code() -> None:
    text = page(conf_dir())
    assert max(map(len, text.splitlines())) <= 120
    codes = text[text.index("exit codes") :]
    for code in (
        "0 PASS",
        "10 false",
        "11 refused",
        "12 inconclusive",
        "20 infrastructure",
        "2 configuration",
        "130/143",
    ):
        assert code in codes


def test_the_page_has_every_lane_that_there_is_in_one_table() -> None:
    text = page(conf_dir())
    for file in (conf_dir() / "lane").glob("*.yaml"):
        assert file.stem == "ladder" or re.search(rf"^  {file.stem} +\w", text, re.MULTILINE), file.stem
    assert len(COMMANDS) == 10


@pytest.mark.parametrize("command", [command for command, _ in COMMANDS if "-m vst " in f"{command} "])
def test_the_commands_of_the_page_compose(command: str, tmp_path: Path) -> None:
    (tmp_path / "DIR/checkpoint").mkdir(parents=True)
    (tmp_path / "DIR/checkpoint/step100.yaml").write_text("defaults: [default]\npath: /b\n")
    words = [word.partition(",step")[0] for word in shlex.split(command)[3:] if word != "-m"]
    done = subprocess.run(
        [sys.executable, "-m", "vst", *words, "--cfg", "job"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_imports_neither_hydra_nor_anything_heavy(flag: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "vst", flag]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ), check=True)
    assert done.stdout == page(conf_dir())
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    heavy = {"hydra", "omegaconf", "torch", "vllm", "httpx", "numpy", "rich", "psutil", "safetensors", "jinja2"}
    assert not imported & heavy
    assert list(tmp_path.iterdir()) == []
