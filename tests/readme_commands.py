"""The commands of the README: what is written there, made runnable on a machine without a GPU or a cluster."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
PROGRAMS = ("python -m vst", "./launchers/", "VLLM_SERVER_DEV_MODE=1 vllm serve", "eval ")
PLACES = ("/nvme/a", "/nvme/b", "RUN_DIR", "SWEEP_DIR", "DIAGNOSIS_DIR", "NAME")
"""What stands for something of the reader's own."""


@dataclass(frozen=True)
class Command:
    """One command with the line of the README that it begins on; ``words`` are without comment and ellipsis."""

    line: int
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return shlex.join(self.words)

    @property
    def module(self) -> str:
        """What ``python -m`` runs, empty for another program."""
        return self.words[2] if self.words[:2] == ("python", "-m") else ""


def commands() -> list[Command]:
    """Every command of the README's blocks, and every one in running text that is written out."""
    lines = README.read_text().splitlines()
    found, number = [], 0
    while number < len(lines):
        first = number
        if lines[number].startswith("    ") and lines[number].strip().startswith(PROGRAMS):
            text = lines[number].strip()
            while text.endswith("\\"):
                number += 1
                text = f"{text[:-1]} {lines[number].strip()}"
            found.append(_command(first + 1, text))
        else:
            found += [
                _command(first + 1, one)
                for one in re.findall(r"`((?:python -m vst|\./launchers/)[^`]*)`", lines[number])
            ]
        number += 1
    return found


def _command(line: int, text: str) -> Command:
    words = shlex.split(text, comments=True)
    return Command(line, tuple(word for word in words if word != "…" and "=…" not in word))


def placed(words: tuple[str, ...], places: dict[str, str]) -> list[str]:
    """The words with the places of the README put where they are in a test."""
    made = []
    for word in words:
        for name in PLACES:
            place = places[name]
            word = re.sub(rf"(?<![\w/]){re.escape(name)}(?![\w])", lambda _, place=place: place, word)
        made.append(word)
    return made
