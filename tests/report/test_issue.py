"""The issue of a diagnosed fault: what it says, when it is refused, and that nothing of a run gets into the script."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from report.diagnosed import diagnosed, look, run
from report.stored import lane, write_run
from vst.checkpoint.zoo.catalogue import CATALOGUE
from vst.errors import ConfigError
from vst.lanes.diagnose.found import Diagnosis
from vst.report.__main__ import main
from vst.report.issue import issue
from vst.report.reproduction import Reproduction, script


def test_an_issue_has_every_part_that_a_developer_asks_for(tmp_path: Path) -> None:
    text = issue(run(tmp_path / "run", diagnosed()))
    for part in ("# [Bug]: ", "## Environment", "## Minimal reproduction", "## Expected", "## Observed", "## Evidence"):
        assert part in text
    assert "the tied head" in text.splitlines()[0]
    assert "* `model.embed_tokens.weight`" in text
    assert "the very same wrong answers" in " ".join(text.split())
    assert "transformers.Qwen2Config" in text and "import vst" not in text and "python -m vst" not in text


def test_identity_reloads_a_over_a_and_a_transition_b_over_a(tmp_path: Path) -> None:
    identity = diagnosed(mode="identity", why=("experts",), looks=[look("identity", False), look("reload", False)])
    assert 'reload "$A"' in issue(run(tmp_path / "one", identity, "zoo-mixtral"))
    assert 'reload "$B"' in issue(run(tmp_path / "two", diagnosed()))


def test_a_checkpoint_that_is_not_of_the_zoo_is_asked_for_by_its_content(tmp_path: Path) -> None:
    text = issue(run(tmp_path / "run", diagnosed(), "mine"))
    assert "A=${A:?the directory of checkpoint A, content blake3:" in text and "transformers." not in text


def test_answers_that_are_no_numbers_and_tensors_that_were_not_found_are_said(tmp_path: Path) -> None:
    bad = look("reload", False)
    bad = replace(bad, apart={**bad.apart, "non_finite": True, "largest_difference": None})
    stopped = "the push of a part ended the search: answered 500"
    looks = [look("identity", False), bad]
    found = diagnosed(mode="identity", why=(), parts=(), tensors=(), minimal=False, stopped=stopped, looks=looks)
    text = " ".join(issue(run(tmp_path / "run", found)).split())
    assert "The log-probabilities are no numbers any more" in text and "difference is None" not in text
    assert "changes the answers ## Environment" in text
    assert f"Which tensors it takes was not found: {stopped}." in text and "Left out of the update" not in text


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (diagnosed(mode=None, looks=[look("identity", True), look("to_b", True)]), "nothing was found to be wrong"),
        (diagnosed(looks=[look("to_b", False), look("reload", True)], same_wrong=False), "from disk arrived"),
        (diagnosed(looks=[look("to_b", False)], same_wrong=None, reload="no route"), r"was not judged \(no route\)"),
    ],
)
def test_what_vllm_and_curl_alone_cannot_show_is_refused(tmp_path: Path, found: Diagnosis, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        issue(run(tmp_path / "run", found))


def test_a_run_without_a_diagnosis_is_sent_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["issue", str(write_run(tmp_path / "run", [lane("L3")]))]) == 2
    assert "run lane=diagnose on this model first" in capsys.readouterr().err


def test_a_bundle_that_does_not_hold_gives_no_issue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path / "run", diagnosed())
    (path / "events.jsonl").write_text("{}\n")
    assert main(["issue", str(path)]) == 10
    assert capsys.readouterr().out == ""


def test_hostile_names_stay_on_their_line_and_out_of_the_script(tmp_path: Path) -> None:
    evil = "x`\n```bash\nrm -rf /\n"
    text = issue(run(tmp_path / "run", diagnosed(tensors=(evil,))))
    assert not any(line.startswith("rm -rf") for line in text.splitlines())
    assert [line for line in text.splitlines() if line.startswith("```")] == ["```bash", "```"]


@pytest.mark.parametrize("name", [name for name, one in CATALOGUE.items() if one.quantised is None])
@pytest.mark.parametrize("identity", [True, False])
def test_every_script_is_one_that_bash_can_read(name: str, identity: bool) -> None:
    text = script(Reproduction(CATALOGUE[name], ("blake3:a", "blake3:b"), identity, (1, 2, 3), parallel=2))
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--tensor-parallel-size 2" in text
    making = text.partition("<<'MAKE'\n")[2].partition("\nMAKE\n")[0]
    compile(making, "made", "exec")
