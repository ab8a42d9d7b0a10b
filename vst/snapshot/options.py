"""Split the words of a launch command into options and the rest, knowing which options take no value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Options in the order given (value None for a switch) and the words after them."""

    given: tuple[tuple[str, str | None], ...]
    rest: tuple[str, ...]

    def values(self, *names: str) -> list[str]:
        """Every value of the options with these names, in order."""
        return [value for name, value in self.given if name in names and value is not None]

    def last(self, *names: str) -> str | None:
        """The value that counts when an option is given more than once."""
        values = self.values(*names)
        return values[-1] if values else None

    def has(self, *names: str) -> bool:
        """True when one of them is given, with or without a value."""
        return any(name in names for name, _ in self.given)


def parse(words: Sequence[str], switches: frozenset[str], valued: frozenset[str] | None = None) -> Options:
    """Read options up to the first plain word or ``--``. Only ``valued`` take a value, else all but switches."""
    given: list[tuple[str, str | None]] = []
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        position += 1
        if word == "--":
            break
        for name, value in _expanded(word, switches, valued):
            if value is None and _takes_value(name, switches, valued) and position < len(words):
                value = words[position]
                position += 1
            given.append((name, value))
    return Options(tuple(given), tuple(words[position:]))


def _takes_value(name: str, switches: frozenset[str], valued: frozenset[str] | None) -> bool:
    return name in valued if valued is not None else name not in switches


def _expanded(word: str, switches: frozenset[str], valued: frozenset[str] | None) -> list[tuple[str, str | None]]:
    """``--a=b`` as one option; ``-itv x`` as its letters, of which the first with a value gets what follows it."""
    if word.startswith("--"):
        name, sign, value = word.partition("=")
        return [(name, value if sign else None)]
    found: list[tuple[str, str | None]] = []
    for place, letter in enumerate(word[1:], 1):
        name, tail = f"-{letter}", word[place + 1 :]
        if tail and _takes_value(name, switches, valued):
            return [*found, (name, tail.removeprefix("="))]
        found.append((name, None))
    return found
