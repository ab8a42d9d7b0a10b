from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

BLOCK = """
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "vllm"):
            raise ImportError(f"{name} must not be imported here")
sys.meta_path.insert(0, Blocked())
"""


@dataclass(frozen=True)
class Done:
    """A command that ended: its code, what it printed, and where it was started."""

    code: int
    out: str
    err: str
    folder: Path

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in self.folder.rglob("run.json")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def vst(tmp_path: Path, cache: Path) -> Any:
    """Run ``python -m vst`` in an empty directory of an awkward name, on a machine that has neither torch nor vLLM."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(BLOCK)
    folder = tmp_path / "wörk dir"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "VST_CACHE": str(cache), "VST_RUNS": "outputs"}

    def run(*args: str, after: str = "") -> Done:
        command = shlex.join([sys.executable, "-m", "vst", *args]) + after
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr, folder)

    return run


def test_the_whole_configuration_is_shown_without_torch_and_vllm(vst: Any) -> None:
    done = vst("--cfg", "job", "--resolve", "lane=L2", "model=local", "model.path=/a", "lane.identities=3")
    assert (done.code, done.err) == (0, "")
    shown = yaml.safe_load(done.out)
    assert (shown["lane"]["name"], shown["lane"]["identities"], shown["model"]["path"]) == ("L2", 3, "/a")
    assert done.runs() == []


def test_the_files_are_audited_without_torch_and_vllm(vst: Any) -> None:
    done = vst("lane=L0")
    assert (done.code, done.err) == (0, "")
    (run,) = done.runs()
    assert (run["state"], run["exit_code"]) == ("complete", 0)


def test_a_reader_that_goes_away_costs_no_evidence(vst: Any) -> None:
    done = vst("lane=L0", after=" | head -c 5 >/dev/null; exit ${PIPESTATUS[0]}")
    assert (done.code, done.err) == (0, "")
    assert [run["state"] for run in done.runs()] == ["complete"]


WRONG = {
    "a codename alone": (["model=modela"], "model.path=…"),
    "an argument of ours": (["server.args=['--model=/x']"], "server.args=--model=/x"),
    "an unknown key": (["lane.cyles=2"], "cyles"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_configuration_ends_with_2_says_what_to_set_and_writes_nothing(vst: Any, what: str) -> None:
    args, message = WRONG[what]
    done = vst(*args)
    assert done.code == 2 and message in done.err
    assert "Traceback" not in done.err and done.runs() == []


def test_a_key_whose_variable_is_not_set_is_a_wrong_configuration(vst: Any) -> None:
    attach = ("lane=L1", "server=attach", "server.base_url=http://127.0.0.1:9")
    done = vst(*attach, "server.api_key_env=VST_TEST_NO_SUCH_KEY")
    assert done.code == 2 and "VST_TEST_NO_SUCH_KEY" in done.out


def test_a_server_that_does_not_answer_is_an_error_and_the_verdict_is_on_disk(vst: Any) -> None:
    done = vst("lane=L1", "server=attach", "server.base_url=http://127.0.0.1:9")
    assert done.code == 20 and "Traceback" not in done.err
    (file,) = done.folder.rglob("verdict.json")
    verdict = json.loads(file.read_text())
    assert (verdict["verdict"], verdict["cause"]) == ("FAIL_CLOSED", "error")
    assert "server.reachable" in done.out and "Connection refused" in done.out


def test_a_host_that_has_no_address_is_an_error_without_a_traceback(vst: Any) -> None:
    done = vst("lane=L1", "server=attach", "server.base_url=http://no-such-host.invalid:8000")
    assert done.code == 20 and "Traceback" not in done.err and "no-such-host.invalid" in done.out


def test_json_lines_are_all_that_is_printed_and_the_verdict_does_not_depend_on_them(vst: Any) -> None:
    plain, lines = vst("lane=L0", "hydra.run.dir=plain"), vst("lane=L0", "hydra.run.dir=json", "console=json")
    assert (plain.code, lines.code, lines.err) == (0, 0, "")
    events = [json.loads(line) for line in lines.out.splitlines()]
    assert [event["event"] for event in events] == ["step", "step", "lane", "verdict"]
    assert events[-1]["exit_code"] == 0 and events[-1]["evidence"] == f"{lines.folder}/json"
    verdicts = [json.loads((lines.folder / name / "verdict.json").read_text()) for name in ("plain", "json")]
    assert verdicts[0] == verdicts[1]


def test_a_signal_after_the_verdict_leaves_the_exit_code_as_the_verdict_has_it(tmp_path: Path) -> None:
    """What ends the interpreter takes a while, and a second Ctrl-C often comes then."""
    late = (
        "import atexit, os, signal, sys\n"
        "from vst.app import main\n"
        "for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "    atexit.register(os.kill, os.getpid(), one)\n"
        f"sys.argv = ['vst', 'lane=L0', 'paths.cache={tmp_path / 'cache'}', 'hydra.run.dir={tmp_path / 'run'}']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "run/verdict.json").read_text())["exit_code"] == 0
