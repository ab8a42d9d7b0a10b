"""Keeping secrets out of everything that a run writes.

Two nets. By value: what the configuration or the environment holds under a name that says secret, and the user part of
URLs, is replaced wherever it turns up. By shape: URLs with a user, bearer tokens, ``NAME_TOKEN=…`` and the tokens of
well-known services are masked even when nobody told us their value.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

MASK = "***"
SHORTEST = 6
"""A value shorter than this is masked in its place only: it would turn up everywhere by chance."""

_WORDS = (
    r"API[_-]?KEYS?|ACCESS[_-]?KEY(?:[_-]?ID)?|SECRET(?:[_-]?ACCESS)?(?:[_-]?KEY)?|PRIVATE[_-]?KEY|AUTH[_-]?TOKEN|TOKEN|"
    r"PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE"
)
_NAME = re.compile(rf"(?:^|.*[_.\-])(?:{_WORDS})$", re.IGNORECASE | re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ASSIGNED = re.compile(
    rf"(?P<name>(?<![\w.\-])(?:[\w.\-]*[_.\-])?(?:{_WORDS})[\"']?\s*[=:]\s*\[?)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&}}\]\"']+)",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"(?P<name>(?<![\w.\-])--(?:[\w.\-]*-)?(?:{_WORDS})[\"']?[\s,]+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;\]\"'-][^\s,;\]\"']*)",
    re.IGNORECASE,
)
_FLAG = re.compile(rf"^--(?:[\w.\-]*-)?(?:{_WORDS})$", re.IGNORECASE)
_URL_USER = re.compile(r"(?<=://)[^/?#\s\"'<>]*@")
_BEARER = re.compile(r"(?i)\b(bearer\s+|authorization[\"']?\s*[:=]\s*[\"']?(?:basic|token)\s+)([^\s'\",]{6,})")
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_\-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_\-]{16,}|"
    r"xox[abprs]-[A-Za-z0-9\-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16})\b"
)


def looks_secret(name: str) -> bool:
    """Whether a value under this name is to be kept out; ``max_tokens`` and ``api_key_env`` are not."""
    return bool(_NAME.match(_CAMEL.sub("_", name.lstrip("-"))))


@dataclass(frozen=True)
class Scrubber:
    """Masks secrets in text and in JSON values; ``values`` are those known by value, longest first."""

    values: tuple[str, ...] = ()

    @staticmethod
    def of(config: Any, environment: Mapping[str, str], named: str | None = None) -> Scrubber:
        """From a resolved configuration and the environment; ``named`` is a variable that is declared to hold a key."""
        found = {*_in_config(config), *_in_environment(environment)}
        if named is not None and environment.get(named):
            found.add(environment[named])
        spelled = {variant for value in found if len(value) >= SHORTEST for variant in _spellings(value)}
        return Scrubber(tuple(sorted(spelled, key=lambda value: (-len(value), value))))

    def text(self, text: str) -> str:
        """Free of known values, of users in URLs, of bearer tokens and of tokens with a known shape."""
        for value in self.values:
            text = text.replace(value, MASK)
        text = _URL_USER.sub(f"{MASK}@", text)
        text = _BEARER.sub(rf"\g<1>{MASK}", text)
        return _SHAPES.sub(MASK, text)

    def foreign(self, text: str) -> str:
        """The same for text of others (command lines, answers, logs): what is assigned to a secret name goes too."""
        return _OPTION.sub(_masked, _ASSIGNED.sub(_masked, self.text(text)))

    def tree(self, content: Any) -> Any:
        """JSON values of ours with every string scrubbed: a reason may repeat what others said.

        What JSON has no spelling for becomes text, so that nothing keeps a verdict from being written.
        """
        return _walk(content, self.foreign)

    def foreign_tree(self, content: Any) -> Any:
        """JSON values of others: also the text under a secret name, and what follows a secret flag in a list."""
        return _walk(content, self.foreign, by_name=True)


def _walk(content: Any, clean: Any, by_name: bool = False) -> Any:
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, Mapping):
        return {
            clean(str(key)): MASK
            if by_name and isinstance(value, (str, list, tuple, Mapping)) and looks_secret(str(key))
            else _walk(value, clean, by_name)
            for key, value in content.items()
        }
    if isinstance(content, (list, tuple)):
        after = [by_name and isinstance(item, str) and bool(_FLAG.match(item)) for item in content]
        return [
            MASK if number and after[number - 1] else _walk(item, clean, by_name) for number, item in enumerate(content)
        ]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content if content is None or isinstance(content, (int, float)) else clean(str(content))


def _masked(found: re.Match[str]) -> str:
    """A number under the name token is a token of a vocabulary."""
    kept = found["value"].isdigit() and found["name"].strip("\"' :=").lower() == "token"
    return found[0] if kept else found["name"] + MASK


def _in_config(config: Any) -> Iterator[str]:
    if isinstance(config, Mapping):
        for key, value in config.items():
            if isinstance(value, str) and looks_secret(str(key)):
                yield value
            yield from _in_config(value)
    elif isinstance(config, (list, tuple)):
        for flag, value in zip(config, config[1:], strict=False):
            if isinstance(flag, str) and isinstance(value, str) and _FLAG.match(flag):
                yield value
        for item in config:
            yield from _in_config(item)
    elif isinstance(config, str):
        yield from _in_url(config)


def _in_environment(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if looks_secret(name):
            yield value
        yield from _in_url(value)


def _in_url(text: str) -> Iterator[str]:
    for found in _URL_USER.finditer(text):
        user, _, password = found[0][:-1].partition(":")
        if password:
            yield password
            yield unquote(password)
            yield base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def _spellings(value: str) -> set[str]:
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
