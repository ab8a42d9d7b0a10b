"""Numbers as people write them in an answer, read as exact values.

Read are signs, thousands separators, decimals with or without a leading or trailing digit, currency before the number
and units after it, percent, fractions (``3/4``, ``1 1/2``, ``½``, ``\\frac{3}{4}``), scientific notation, and the
words thousand to trillion. What only looks like a number – a time, a date, a version, a ratio – is passed over whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

GAPS = ",\u00a0\u2009\u202f"
"""What separates thousands; a plain space does not: it also stands between two numbers."""

_VULGAR = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_WHOLE = rf"(?:\d{{1,3}}(?:[{GAPS}]\d{{2,3}})*[{GAPS}]\d{{3}}(?!\d)|\d+)"
_COMMA_DECIMAL = r"\d{1,3}(?:\.\d{3})+,\d{1,2}(?!\d)"
_DECIMAL = rf"(?:{_COMMA_DECIMAL}|{_WHOLE}(?:\.\d+)?|\.\d+)"
_SIGN = r"(?P<sign>(?<![\w)\]}.%°])[-+−–])?"
_CURRENCY = r"(?:(?:(?:US|A|C|HK|NZ)?\\?[$€£¥₹₩]|\b(?:USD|EUR|GBP|Rs\.?))\s?(?P<inner>[-−])?)?"
_POWER = r"(?:[eE](?P<exponent>[+-]?\d{1,3})(?!\w)|\s?(?:×|x|\*|\\times)\s?10\s?\^\s?\{?(?P<power>[-−]?\d{1,3})\}?)?"
_SCALES = {"thousand": 3, "k": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = r"(?:\s?(?P<scale>thousand|million|billion|trillion)\b|(?P<k>[kK])\b(?!\w))?"

_NOT_A_NUMBER = (
    r"(?P<skip>\d+(?::\d+)+|\d+(?:\.\d+){2,}|\d{1,4}(?P<between>[-/])\d{1,2}(?P=between)\d{1,4}|(?<![\d.,])(?!(?:USD|EUR|GBP|Rs)\d)[A-Za-z_]+\d\w*)"
)
_FRACTION = (
    rf"(?:(?P<mixed>\d+)[ -])?(?P<top>{_WHOLE})\s?[/⁄]\s?(?P<bottom>{_WHOLE})(?![\d./])"
    rf"|(?P<latexwhole>\d+)?\s?\\[dt]?frac\s?\{{(?P<latextop>\d+)\}}\s?\{{(?P<latexbottom>\d+)\}}"
    rf"|(?P<vulgarwhole>\d+)?\s?(?P<vulgar>[{_VULGAR}])"
)
_PLAIN = rf"(?P<plain>{_DECIMAL}){_POWER}{_SCALE}"
_NUMBER = re.compile(rf"{_NOT_A_NUMBER}|{_SIGN}{_CURRENCY}(?:{_FRACTION}|{_PLAIN})")


@dataclass(frozen=True)
class Number:
    """A number in a text: its exact value and where it stands."""

    value: Fraction
    start: int
    end: int


def numbers(text: str) -> Iterator[Number]:
    """All numbers of a text from left to right."""
    for found in _NUMBER.finditer(text.replace("{,}", ",").replace("\\,", ",")):
        value = None if found["skip"] else _value(found)
        if value is not None:
            yield Number(value, found.start(), found.end())


def first(text: str) -> Fraction | None:
    """The first number of a text, None without one."""
    return next((number.value for number in numbers(text)), None)


def last(text: str) -> Fraction | None:
    """The last number of a text, None without one."""
    found = None
    for number in numbers(text):
        found = number.value
    return found


def spell(value: Fraction | None) -> str | None:
    """One spelling for each value: ``18``, ``-3/4``; None stays None."""
    return None if value is None else str(value)


def _value(found: re.Match[str]) -> Fraction | None:
    size = _size(found)
    if size is None:
        return None
    negative = [part for part in (found["sign"], found["inner"]) if part and part.strip() in "-−–"]
    return -size if len(negative) == 1 else size


def _size(found: re.Match[str]) -> Fraction | None:
    if found["plain"]:
        return _digits(found["plain"]) * Fraction(10) ** _shift(found)
    if found["vulgar"]:
        part = Fraction(unicodedata.numeric(found["vulgar"])).limit_denominator(10)
        return Fraction(found["vulgarwhole"] or 0) + part
    whole, top, bottom = (
        (found["latexwhole"], found["latextop"], found["latexbottom"])
        if found["latextop"]
        else (found["mixed"], found["top"], found["bottom"])
    )
    divisor = _digits(bottom)
    return Fraction(whole or 0) + _digits(top) / divisor if divisor else None


def _shift(found: re.Match[str]) -> int:
    power = found["exponent"] or found["power"]
    scale = found["scale"] or found["k"]
    return int((power or "0").replace("−", "-")) + (_SCALES[scale.lower()] if scale else 0)


def _digits(text: str) -> Fraction:
    if re.fullmatch(_COMMA_DECIMAL, text):
        text = text.replace(".", "").replace(",", ".")
    return Fraction("".join(char for char in text if char not in GAPS))
