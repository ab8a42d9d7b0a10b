from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import Any

import pytest
from report import hostile

from vst.console import RunConsole, make_console, plain
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
    monkeypatch.setattr("vst.progress.time.monotonic", lambda: now[0])
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


def test_a_second_line_of_a_message_cannot_look_like_one_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    RunConsole().say("reason\nPASS  lane L3, exit code 0")
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("PASS")] == []


@pytest.mark.parametrize("text", hostile.ALL, ids=hostile.NAMES)
@pytest.mark.parametrize("kind", ["plain", "json"])
def test_hostile_text_is_shown_as_text(kind: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    check = Check(f"x.{text[:50]}", Outcome.FAIL, reason=text, warnings=(text,))
    verdict = Verdict("L3", [LaneVerdict("L3", (check,))])
    console = make_console(kind)
    console.say(text)
    console.lane(verdict.lanes[0])
    console.end(verdict, {**SERVER, "holds": text}, f"/runs/{text[:50]}")
    shown = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in shown)


def lines_of(shown: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown.splitlines()]


def test_json_lines_tell_steps_bytes_lanes_and_the_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("vst.progress.time.monotonic", lambda: now[0])
    told: list[str] = []
    console = make_console("json", lambda kind, **fields: told.append(kind))
    console.watch(lambda: "paused")
    console.say("cycle 1 of 2: to B\n\x1b[2J")
    for done in range(5):
        console.bytes("sent", done * 10_000_000, 40_000_000)
        now[0] += 1
    check = Check("transition.to_b", Outcome.FAIL, reason="no effect")
    verdict = Verdict("L3", [LaneVerdict("L3", (check,))])
    console.lane(verdict.lanes[0])
    console.end(verdict, SERVER, "/runs/1")
    lines = lines_of(capsys.readouterr().out)
    assert [line["event"] for line in lines] == ["step", "bytes", "bytes", "lane", "verdict"]
    assert all(line["server_state"] == "paused" and "seconds" in line for line in lines)
    assert (lines[1]["done"], lines[1]["bytes_per_s"], lines[1]["seconds_left"]) == (20_000_000, 10_000_000.0, 2.0)
    assert lines[3]["checks"][0] == {
        "id": "transition.to_b", "outcome": "fail", "reason": "no effect", "warnings": [],
    }  # fmt: skip
    assert (lines[4]["verdict"], lines[4]["exit_code"], lines[4]["evidence"]) == ("FAIL_CLOSED", 10, "/runs/1")
    assert told == ["step", "lane"]


@pytest.mark.parametrize("kind", ["json", "plain"])
def test_no_console_minds_a_reader_that_goes_away(kind: str) -> None:
    script = LINES.replace("RunConsole()", f"make_console('{kind}')").replace("import Run", "import make_console, Run")
    command = ["bash", "-c", '"$0" -c "$1" | head -c 100 > /dev/null; exit ${PIPESTATUS[0]}', sys.executable]
    done = subprocess.run([*command, script + "import os; os._exit(7)"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (7, b"")


TERMINAL = """
import sys, time
from vst.console import make_console
from vst.verdict import Check, LaneVerdict, Outcome, Verdict
console = make_console("auto")
state, drawn = ["serving"], [0]
def watched():
    drawn[0] += 1
    return state[0]
def wait_for_a_drawing():
    # Two, since the one that goes on now may have asked before; a busy machine may take its time for them.
    enough, until = drawn[0] + 2, time.monotonic() + 60
    while drawn[0] < enough and time.monotonic() < until:
        time.sleep(0.02)
console.watch(watched)
console.say("cycle 1 of 2: to B")
state[0] = "updating"
for done in range(4):
    console.bytes("sent", done * 10_000_000, 90_000_000)
    wait_for_a_drawing()
lane = LaneVerdict("L2", (Check("identity.record", Outcome.PASS),))
console.lane(lane)
console.say("control 1 of 7")
wait_for_a_drawing()
console.end(Verdict("L2", [lane]), {"state": "serving", "holds": "A", "left": "stopped"}, "/runs/1")
"""


def on_a_terminal(script: str) -> str:
    """What a program writes when its standard output is a terminal of 160 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    # A width that the environment gives would go before that of the terminal.
    unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    env = {**{key: value for key, value in os.environ.items() if key not in unset}, "TERM": "xterm-256color"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                shown += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
        assert process.wait(30) == 0, shown.decode()
    os.close(master)
    return shown.decode()


def test_on_a_terminal_the_last_line_tells_state_bytes_and_rate_and_is_gone_at_the_end() -> None:
    shown = on_a_terminal(TERMINAL)
    assert "server updating" in shown and re.search(r"sent \d0.0 of 90.0 MB, [\d.]+ MB/s, \d+ s left", shown)
    assert "L2 ✓" in shown and re.search(r"control 1 of 7, \d s", shown)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor comes back"
    stays = [line for line in shown.replace("\r", "\n").split("\n") if "cycle 1 of 2: to B" in line and "·" not in line]
    assert len(stays) == 1, "a step is a line that stays, once"
    assert "\x1b[2K" in shown[shown.rindex("·") :], "the last line is taken away before the table"
