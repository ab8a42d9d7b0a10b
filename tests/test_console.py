from __future__ import annotations

import subprocess
import sys

import pytest

from vst.console import RunConsole, plain
from vst.verdict import Check, LaneVerdict, Outcome, Verdict

SERVER = {"state": "tainted", "holds": "part of checkpoint", "left": "paused, if it still answered"}


def test_text_from_outside_can_do_nothing_to_a_terminal() -> None:
    shown = plain("a\x1b[2Jb\x07c\r\u202ed\u200be\udcff")
    assert shown.isprintable() and shown.isascii()
    assert "\\x1b[2J" in shown and "\\u202e" in shown and "\\udcff" in shown


def test_long_text_is_cut_and_says_where_the_rest_is() -> None:
    assert plain("x" * 1000, 10) == "x" * 10 + "… (1000 characters, whole in verdict.json)"


def test_lines_are_shown_as_they_are_without_markup_or_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    RunConsole().say("[bold]tensor[/bold] [/nonsense] :warning: http://h:8000/ C:\\ ends in \\")
    assert "[bold]tensor[/bold] [/nonsense] :warning: http://h:8000/ C:\\ ends in \\" in capsys.readouterr().out


def test_the_end_shows_each_check_with_its_reason_the_state_the_code_and_the_directory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = (
        Check("transition.to_b", Outcome.FAIL, reason="no effect: equals A [red]"),
        Check("transition.label", Outcome.PASS, warnings=("content without label",)),
    )
    verdict = Verdict("L3", [LaneVerdict("L3", checks)], covered={"tensors": "3 of 4", "bytes": "10 of 12"})
    console = RunConsole()
    console.lane(verdict.lanes[0])
    console.end(verdict, SERVER, "/runs/a [b]/é")
    shown = capsys.readouterr().out
    for part in (
        "L3  FAIL_CLOSED, fail  1 of 2 checks passed",
        "warning transition.label: content without label",
        "no effect: equals A [red]",
        "3 of 4 tensors, 10 of 12 bytes",
        "state tainted",
        "FAIL_CLOSED (fail)  lane L3, exit code 10",
        "evidence: /runs/a [b]/é",
    ):
        assert part in shown


def test_a_path_that_is_not_utf8_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    RunConsole().end(Verdict("L0", [LaneVerdict("L0", (Check("x", Outcome.PASS),))]), SERVER, "/runs/\udcff")
    assert "/runs/\\udcff" in capsys.readouterr().out


def test_progress_of_a_long_transfer_is_shown_with_its_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("vst.console.time.monotonic", lambda: now[0])
    console = RunConsole()
    for second in range(10):
        now[0] += 1
        console.bytes("sent", second * 10_000_000, 90_000_000)
    lines = [line for line in capsys.readouterr().out.splitlines() if "MB/s" in line]
    assert 2 <= len(lines) <= 5 and all("10.0 MB/s" in line for line in lines)


LINES = "from vst.console import RunConsole\nc = RunConsole()\nfor n in range(2000): c.say('x' * 100)\n"


@pytest.mark.parametrize("redirect", ["| head -c 100 > /dev/null; exit ${PIPESTATUS[0]}", ">&-", "> /dev/null"])
def test_a_run_goes_on_when_nobody_reads_what_it_shows(redirect: str) -> None:
    script = LINES + "import os; os._exit(7)"
    done = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {redirect}', sys.executable, script], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (7, b"")
