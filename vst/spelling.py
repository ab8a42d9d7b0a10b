"""Mistyped overrides: found before Hydra composes, and answered with the nearest names that are valid.

Only what is certain is said here: keys below the schema's groups, and options of groups that no other directory could
hold. Everything else is Hydra's to judge.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from vst.config import VstConf

DIRECTORY_FLAGS = ("--config-dir", "-cd")
OTHER_SOURCES = ("--config-path", "-cp", "--config-name", "-cn", "--shell-completion", "-sc")
NAME = re.compile(r"[\w./-]+")
NEAREST = 3


def misspelt(words: Sequence[str], conf: Path) -> list[str]:
    """What to say about the overrides in ``words``; ``conf`` is the directory of our own groups."""
    # With another primary configuration nothing is known, and completion has words of its own.
    if any(word.startswith(OTHER_SOURCES) for word in words) or any("hydra.searchpath" in word for word in words):
        return []
    places = [conf, *_directories(words)]
    return [said for word in words for said in _about(word, places)]


def _directories(words: Sequence[str]) -> Iterator[Path]:
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in DIRECTORY_FLAGS:
            yield Path(value if equals else words[number + 1] if number + 1 < len(words) else ".")


def _about(word: str, places: Sequence[Path]) -> Iterator[str]:
    key, equals, value = word.partition("=")
    if word.startswith(("-", "+", "~")) or not equals or "@" in key or key.startswith(("hydra.", "hydra/")):
        return
    options = _options(key, places)
    if options:
        for one in value.split(","):
            if NAME.fullmatch(one) and one not in options and one != "null":
                yield f"{key}={one}: there is no such option; {_near(one, options)}"
    elif key not in known_keys() and _certain(key, places):
        yield f"{key} is unknown; {_near(key, [*known_keys(), *_groups(places)])}"


def _options(group: str, places: Sequence[Path]) -> list[str]:
    """The options of a group, those in folders below it with the folder: ``zoo/llama``."""
    below = [place / group for place in places if "." not in group]
    return sorted({str(file.relative_to(at).with_suffix("")) for at in below for file in at.rglob("*.yaml")})


def _groups(places: Sequence[Path]) -> list[str]:
    return [path.name for place in places if place.is_dir() for path in place.iterdir() if path.is_dir()]


def _certain(key: str, places: Sequence[Path]) -> bool:
    """Whether nobody but the schema could know this key: it lies in one of its groups, or nothing is called so.

    What lies below a key that is no group of keys, such as ``server.env.NAME``, is not certain.
    """
    parts = key.split(".")
    above = {".".join(parts[:end]) for end in range(1, len(parts))}
    if above & set(_leaves()):
        return False
    first = parts[0]
    return first in {field.name for field in dataclasses.fields(VstConf)} or first not in _groups(places)


def known_keys() -> list[str]:
    """Every key of the schema, written with dots; below a mapping any name is allowed, and none is listed."""
    return list(_keys(VstConf, ""))


def _leaves() -> list[str]:
    keys = known_keys()
    return [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]


def _keys(schema: Any, prefix: str) -> Iterator[str]:
    hints = get_type_hints(schema)
    for field in dataclasses.fields(schema):
        name = f"{prefix}{field.name}"
        yield name
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _keys(hints[field.name], f"{name}.")


def _near(word: str, valid: Sequence[str]) -> str:
    """The nearest valid names; for a key also those that end in the same word."""
    valid = list(dict.fromkeys(valid))
    close = difflib.get_close_matches(word, valid, n=NEAREST, cutoff=0.8)
    close = close or difflib.get_close_matches(word, valid, n=1, cutoff=0.6)
    last = word.rpartition(".")[2]
    close += [name for name in valid if name.rpartition(".")[2] == last and name not in close][: NEAREST - len(close)]
    if close:
        return f"the nearest are {', '.join(close)}" if len(close) > 1 else f"the nearest is {close[0]}"
    listed = sorted(valid)
    return f"valid are {', '.join(listed)}" if len(listed) <= 12 else "python -m vst --help lists what there is"
