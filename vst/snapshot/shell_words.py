"""Cut a shell script into simple commands, as far as a launch line needs it (no expansion is done)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_COMMENT = re.compile(r"\s#.*$")
_SEPARATORS = {";", "&", "&&", "|", "||", "(", ")", ";;", "\n"}


@dataclass(frozen=True)
class Command:
    """One simple command: its line number, the assignments before it, and its words."""

    line: int
    assignments: tuple[str, ...]
    words: tuple[str, ...]


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined and comments left out, each with the number of its first line."""
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        start = start or number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield start, pending + line
        pending, start = "", 0
    if pending:
        yield start, pending


def commands(text: str) -> Iterator[Command]:
    """Every simple command; a line whose quotes do not close is joined with the next ones."""
    pending, start = "", 0
    for number, line in logical_lines(text):
        start = start or number
        pending += ("\n" if pending else "") + line
        words = split_words(pending)
        if words is not None:
            yield from _simple(words, start)
            pending, start = "", 0
    if pending:
        yield from _simple(pending.split(), start)


def split_words(line: str) -> list[str] | None:
    """The words and separators of a line, quotes removed and a comment cut off; None while a quote is open."""
    for candidate in (line, _COMMENT.sub("", line)):
        lexer = shlex.shlex(candidate, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            words = list(lexer)
        except ValueError:
            continue
        comment = next((place for place, word in enumerate(words) if word.startswith("#")), len(words))
        return words[:comment]
    return None


def _simple(words: list[str], line: int) -> Iterator[Command]:
    part: list[str] = []
    for word in [*words, ";"]:
        if word not in _SEPARATORS:
            part.append(word)
            continue
        if part:
            yield _command(part, line)
        part = []


def _command(words: list[str], line: int) -> Command:
    if words[0] in ("export", "env", "exec", "time", "sudo"):
        return _command(words[1:], line) if words[1:] else Command(line, (), ())
    count = 0
    while count < len(words) and _ASSIGNMENT.match(words[count]):
        count += 1
    return Command(line, tuple(words[:count]), tuple(words[count:]))
