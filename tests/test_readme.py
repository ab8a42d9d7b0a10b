"""Every command of the README runs: for real where a laptop can, and up to the composed configuration elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from readme_commands import README, Command, commands, placed
from report.diagnosed import diagnosed
from report.diagnosed import run as diagnosed_run
from report.sweeps import write_sweep

from vst.checkpoint.tiny import make_tiny_pair
from vst.config import OPERATIONS
from vst.server.launch import ServerSpec, command

COMMANDS = commands()
OFFLINE = ("lane=L0",)
"""What makes a run need nothing but files: these are run, the others composed."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The places that the README names: two checkpoints, a finished run, a sweep, a directory of configurations."""
    root = tmp_path_factory.mktemp("readme")
    a, b = make_tiny_pair(root / "tiny")
    run = root / "run"
    done = vst(root, "vst", "lane=L0", f"hydra.run.dir={run}")
    assert done.returncode == 0, done.stderr
    sweep = write_sweep(root / "sweep", ["step100", "step200"], ["L0"]).path
    (root / "conf/checkpoint").mkdir(parents=True)
    for step in ("step100", "step200"):
        (root / f"conf/checkpoint/{step}.yaml").write_text(f"defaults: [default]\npath: {b}\n")
    (root / "conf/model").mkdir()
    (root / "conf/model/modela.yaml").write_text(f"defaults: [local]\nname: modela\npath: {a}\n")
    repository = root / "repository"
    repository.mkdir()
    (repository / "code.py").write_text("pass\n")
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=repository, check=True)
    diagnosis = diagnosed_run(root / "diagnosis", diagnosed())
    own = {"root": str(root), "repository": str(repository), "NAME": "tiny", "DIAGNOSIS_DIR": str(diagnosis)}
    return {**own, "/nvme/a": str(a), "/nvme/b": str(b), "RUN_DIR": str(run), "SWEEP_DIR": str(sweep)}


def vst(root: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "VST_CACHE": str(root / "cache"), "VST_RUNS": str(root / "outputs")}
    argv = [sys.executable, "-m", module, *words]
    return subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)


def runs(one: Command, world: dict[str, str]) -> None:
    """A run that needs files alone is made, any other composed with the same overrides."""
    root = Path(world["root"])
    words = placed(one.words[3:], world)
    if "--help" in words or set(words) & set(OFFLINE) and "-m" not in words:
        done = vst(root, "vst", *words)
    else:
        done = composed(root, words)
    assert done.returncode == 0, f"README line {one.line}: {one.text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def composed(root: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """The configuration of the first run that these words ask for."""
    own = [] if "--config-dir" in words else ["--config-dir", str(root / "conf")]
    flags = [word for word in words if word == "--config-dir" or word.startswith("--")]
    rest = [first_of(word) for word in words if word != "-m" and word not in flags]
    return vst(root, "vst", *own, *flags, *rest, "--cfg", "job")


def first_of(word: str) -> str:
    key, equals, value = word.partition("=")
    return word if value.startswith(("[", "{", "'", '"')) else f"{key}{equals}{value.split(',')[0]}"


ENDS = {"vst.checklist": 12}
"""Exit codes other than 0: a run of L0 alone leaves rows of the checklist open."""


def looks(one: Command, world: dict[str, str]) -> None:
    """A program that reads what runs left behind, on a run, a sweep and a repository that are there."""
    where = Path(world["repository"] if one.module == "vst.snapshot" else world["root"])
    done = vst(where, one.module, *placed(one.words[3:], world))
    expected = ENDS.get(one.module, 0)
    assert done.returncode == expected, (
        f"README line {one.line}: {one.text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    )


def described(one: Command, world: dict[str, str]) -> None:
    """A program that waits for a server's files, or serves for ever: its help knows the command and its options."""
    command = [word for word in one.words[3:4] if not word.startswith("-")]
    done = vst(Path(world["root"]), one.module, *command, "--help")
    assert done.returncode == 0, f"README line {one.line}: {one.text}\n{done.stderr}"
    assert all(word.split("=")[0] in done.stdout for word in one.words if word.startswith("--"))


def launches(one: Command, world: dict[str, str]) -> None:
    """The two scripts: that they are there; what follows is composed. They are run by every check of the project."""
    script = README.parent / one.words[0]
    assert script.is_file() and os.access(script, os.X_OK)
    words = [word for word in one.words[1:] if word != "--gpu"]
    if words:
        done = composed(Path(world["root"]), placed(tuple(words), world))
        assert done.returncode == 0, f"README line {one.line}: {done.stderr[-2000:]}"


def serves(one: Command, world: dict[str, str]) -> None:
    """Starting a server by hand asks for what a server that we start ourselves is started with."""
    ours = command(ServerSpec("gpu", "nccl", 1, 1, 1, None, None), Path("/nvme/a"), "h", 1, "n")
    flags = [word for word in one.words if word.startswith("--")]
    assert flags and set(flags) <= set(ours), f"README line {one.line}"


def completes(one: Command, world: dict[str, str]) -> None:
    """What bash is to evaluate is bash."""
    done = vst(Path(world["root"]), "vst", "--shell-completion", "install=bash")
    assert done.returncode == 0
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def kind_of(one: Command) -> Callable[[Command, dict[str, str]], None] | None:
    """How a command of the README is tested; None when nobody has thought of it."""
    if one.module == "vst":
        return runs
    if one.module.startswith("vst."):
        return described if one.module in ("vst.evals", "vst.selftest") else looks
    starts: dict[str, Callable[[Command, dict[str, str]], None]] = {
        "./launchers/run": launches, "./launchers/check": launches, "VLLM_SERVER_DEV_MODE=1": serves, "eval": completes,
    }  # fmt: skip
    return starts.get(one.words[0])


def test_every_command_of_the_readme_is_covered() -> None:
    assert len(COMMANDS) > 20
    assert [one.text for one in COMMANDS if kind_of(one) is None] == []


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: f"line-{one.line}")
def test_a_command_of_the_readme_works(one: Command, world: dict[str, str]) -> None:
    how = kind_of(one)
    assert how is not None
    how(one, world)


def test_the_readme_names_every_operation_and_exit_code() -> None:
    text = README.read_text()
    assert [name for name in OPERATIONS if f"lane={name}" not in text] == []
    assert all(f"| {code} |" in text for code in ("0", "10", "11", "12", "20", "2", "130, 143"))


def test_every_file_and_picture_that_the_readme_links_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text())
    local = [link for link in links if "://" not in link]
    assert local and all((README.parent / link).is_file() for link in local)
